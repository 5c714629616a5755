"""The one place where TensorFlow is imported, and where its releases are made alike.

Hugging Face's TensorFlow models are Keras 2, so ``tf.keras`` must be the legacy one; that is decided by an environment
variable which TensorFlow reads at import time. On Graphcore's TensorFlow 2.6 ``tf.keras`` is Keras 2 already and the
variable has no effect.

Example:
    >>> from keras_extensions.backend import keras, tf
"""

from __future__ import annotations

import logging
import os
import random

import numpy as np

from keras_extensions.startup_noise import quiet_loading

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("USE_TORCH", "0")  # else Transformers loads PyTorch where it is installed: 270 MB for nothing

with quiet_loading():
    import tensorflow as tf

    keras = tf.keras
    keras.layers  # noqa: B018 (Keras is loaded when first used; now, while its chatter is held back)

logging.getLogger("absl").setLevel(logging.WARNING)  # else every checkpoint tells of its "sharding callback"

__all__ = ["keras", "set_random_seed", "tf"]


def set_random_seed(seed: int) -> None:
    """Seed the random numbers of Python, NumPy, TensorFlow and Keras."""
    if hasattr(keras.utils, "set_random_seed"):
        keras.utils.set_random_seed(seed)
        return
    random.seed(seed)  # before TensorFlow 2.7, where Keras has no random numbers of its own
    np.random.seed(seed)
    tf.random.set_seed(seed)
