"""Estimates, without TensorFlow, whether a run fits in memory, how well it is balanced, and how long it takes."""
