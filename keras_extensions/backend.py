"""The one place where TensorFlow is imported.

Hugging Face's TensorFlow models are Keras 2, so ``tf.keras`` must be the legacy one; that is decided by an environment
variable which TensorFlow reads at import time. On Graphcore's TensorFlow 2.6 ``tf.keras`` is Keras 2 already and the
variable has no effect.

Example:
    >>> from keras_extensions.backend import keras, tf
"""
from __future__ import annotations

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's start-up chatter hides the lines users look for.

import tensorflow as tf  # noqa: E402

keras = tf.keras

__all__ = ["keras", "tf"]
