"""Imports TensorFlow for all modules except the IPU platform, and hides differences between its releases.

Hugging Face's TensorFlow models need Keras 2, so ``tf.keras`` must be the legacy one. TensorFlow reads at import an
environment variable that selects it. In Graphcore's TensorFlow 2.6 ``tf.keras`` is Keras 2 in any case.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
from typing import Iterator

import numpy as np

from keras_extensions.quiet import without_noise
from utilities.environment import keep_freed_memory, lacks_instructions, prepare_transformers, return_freed_memory
from utilities.errors import UserError

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
prepare_transformers()

keep_freed_memory()  # before TensorFlow has threads
gc.set_threshold(100_000)  # each collection visits TensorFlow's million objects: a tenth of a command's start

# TensorFlow's log shows errors only, unless the user has set a level; without an NVIDIA driver not even errors, because
# TensorFlow reports its absence as one. On a processor without AVX, TensorFlow ends the process and says why.
NVIDIA_DRIVERS = ("/proc/driver/nvidia", "/dev/dxg")  # Linux, and Linux on Windows
shows_all = "TF_CPP_MIN_LOG_LEVEL" in os.environ or lacks_instructions("avx")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if any(map(os.path.exists, NVIDIA_DRIVERS)) else "3")

try:
    with contextlib.nullcontext() if shows_all else without_noise():
        import tensorflow as tf  # reads these variables
except (ImportError, MemoryError) as error:
    if isinstance(error, ImportError) and "failed to map segment" not in str(error):
        raise
    reason = str(error) or "out of memory"
    raise UserError(f"TensorFlow cannot be loaded ({reason}); allow more memory (ulimit -v), 4 GB or more") from error

keras = tf.keras

logging.getLogger("absl").setLevel(logging.WARNING)  # otherwise every checkpoint logs its "sharding callback"
# TensorFlow warns of callbacks that take longer than a batch, such as those that save and evaluate, and of programs
# that are compiled for each model.
NOT_TO_MEND = (
    "slow compared to the batch time",
    "triggered tf.function retracing",
    "Assets written to",  # room: saved_model
)
logging.getLogger("tensorflow").addFilter(lambda record: not any(text in record.getMessage() for text in NOT_TO_MEND))

__all__ = ["free_models", "keras", "layers_in", "set_random_seed", "tf"]


@contextlib.contextmanager
def layers_in(precision: str) -> Iterator[None]:
    """Within the block, create layers that compute and keep their weights in a format such as ``mixed_bfloat16``."""
    policy = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(precision)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(policy)


def free_models() -> None:
    """Free the memory of models without references, and return it to the system."""
    keras.backend.clear_session()
    gc.collect()
    return_freed_memory()


def set_random_seed(seed: int) -> None:
    """Seed the random numbers of Python, NumPy, TensorFlow and Keras."""
    if hasattr(keras.utils, "set_random_seed"):
        keras.utils.set_random_seed(seed)
        return
    random.seed(seed)  # before TensorFlow 2.7, Keras has no random generator of its own
    np.random.seed(seed)
    tf.random.set_seed(seed)
