"""Configures the devices and threads of this process, and assigns pipeline stages to devices.

All functions must be called before TensorFlow computes anything.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import List, Optional, Sequence

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
    """Return whether the environment leaves CUDA's programs any GPU."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0") not in ("", "-1")


def on_gpu() -> bool:
    """Return whether there is a GPU to compute on."""
    return bool(tf.config.get_visible_devices("GPU"))


def use_threads(threads: Optional[int], parallel: int, devices: int) -> None:
    """Limit the threads of one operation, and the number of operations that run at the same time.

    Args:
        threads: number of threads; None: one per core.
        parallel: number of micro batches that are computed at the same time, and share the threads.
        devices: number of devices, whose operations still run in parallel.
    """
    if parallel > 1:
        tf.config.threading.set_intra_op_parallelism_threads(max((threads or usable_cores()) // parallel, 1))
        tf.config.threading.set_inter_op_parallelism_threads(parallel)
    elif threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(max(threads, devices))


def pipeline_devices(count: Optional[int]) -> List[str]:
    """Return the names of the devices over which pipeline stages are spread.

    None: all GPUs, or the one CPU. A CPU is divided into ``count`` logical devices, which share its cores and memory.
    """
    gpus = tf.config.get_visible_devices("GPU")
    if gpus:
        if count is not None and count > len(gpus):
            raise UserError(f"execution.pipeline_devices is {count}, but there are {len(gpus)} GPUs; set it to that")
        return [f"/GPU:{number}" for number in range(count or len(gpus))]
    if count is not None and count > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        if tf.config.get_logical_device_configuration(cpu) is None:
            parts = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
            tf.config.set_logical_device_configuration(cpu, parts)
    return [f"/CPU:{number}" for number in range(count or 1)]


def stage_devices(device_mapping: Sequence[int], devices: Sequence[str]) -> List[str]:
    """Return the device of each pipeline stage: IPU ``k`` of the mapping becomes device ``k`` modulo their number.

    Example:
        >>> stage_devices([0, 1, 2, 0], ["/GPU:0", "/GPU:1"])
        ['/GPU:0', '/GPU:1', '/GPU:0', '/GPU:0']
    """
    return [devices[ipu % len(devices)] for ipu in device_mapping]
