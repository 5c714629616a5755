"""Keras callbacks, and the listeners of the one that measures."""
