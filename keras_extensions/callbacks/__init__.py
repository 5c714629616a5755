"""Keras callbacks, and listeners to the callback that measures a run."""
