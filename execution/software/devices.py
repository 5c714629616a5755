"""Configures the devices and threads of this process.

All functions must be called before TensorFlow computes anything.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Optional

from keras_extensions.backend import tf
from utilities.environment import nvidia_gpus, usable_cores
from utilities.errors import UserError

logger = logging.getLogger(__name__)


def use_device(device: str) -> None:
    """Make only the config's kind of device, ``auto``, ``cpu`` or ``gpu``, visible to TensorFlow."""
    gpus = tf.config.list_physical_devices("GPU")
    if (device == "cpu" and gpus) or (device == "auto" and not gpus and _may_see_gpus() and nvidia_gpus()):
        reason = "execution.device is cpu" if gpus else "TensorFlow cannot use it, install requirements-cuda.txt"
        logger.warning("this machine's GPU stays idle: %s", reason)
    if device == "gpu" and not gpus:
        raise UserError("execution.device is gpu, but TensorFlow sees none; install requirements-cuda.txt or use cpu")
    if device == "cpu" and gpus:
        tf.config.set_visible_devices([], "GPU")
    elif gpus:
        # Products of float32 are then exact to float32, as on a CPU; those of 16-bit formats do not change.
        tf.config.experimental.enable_tensor_float_32_execution(False)
        for gpu in gpus:
            with contextlib.suppress(RuntimeError):  # once TensorFlow has started, this cannot be changed
                tf.config.experimental.set_memory_growth(gpu, True)


def _may_see_gpus() -> bool:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0") not in ("", "-1")


def on_gpu() -> bool:
    return bool(tf.config.get_visible_devices("GPU"))


def use_threads(threads: Optional[int], parallel: int, devices: int) -> None:
    """Limit the threads of one operation, and the number of operations that run at the same time."""
    if parallel > 1:
        tf.config.threading.set_intra_op_parallelism_threads(max((threads or usable_cores()) // parallel, 1))
        tf.config.threading.set_inter_op_parallelism_threads(parallel)
    elif threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(max(threads, devices))
