"""Estimates of a run, made without TensorFlow: whether it fits, how well it is balanced, how long it takes."""
