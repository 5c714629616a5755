"""Which machine a run gets."""

from __future__ import annotations

import importlib.util
from typing import Optional

from execution.interface import Platform
from keras_extensions.backend import tf
from utilities.errors import UserError

# As measured with micro batch 8, sequence 128, dropout and AdamW on 2 cores with AVX-512: XLA was faster than graph
# execution by 20 % at a hidden size of 128, 8 % at 256, 6 % at 512, equal at 768.
XLA_WINS = True


def select_platform(
    platform: str,
    device: str,
    xla: Optional[bool],
    threads: Optional[int],
    seed: int,
    recompute: bool,
) -> Platform:
    """The platform that the config names, ready to build models on.

    Must be called before anything else uses TensorFlow, because threads and devices are fixed by the first use.

    Args:
        platform: ``auto``, ``software`` or ``graphcore``.
        device: ``auto``, ``cpu`` or ``gpu``.
        xla: compile with XLA; None takes what was measured faster.
        threads: CPU threads; None takes all cores.
        seed: of dropout.
        recompute: recompute the encoder layers' activations in the backward pass.

    Raises:
        UserError: the machine lacks what is asked for.
    """
    if platform == "graphcore" or (platform == "auto" and graphcore_installed()):
        raise UserError(
            "execution.platform: this version has no working IPU adapter yet; set execution.platform to software"
        )
    from execution.software.platform import SoftwarePlatform

    use_device(device)
    if threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    return SoftwarePlatform(seed=seed, xla=XLA_WINS if xla is None else xla, recompute=recompute)


def graphcore_installed() -> bool:
    """Whether this is Graphcore's TensorFlow."""
    try:
        return importlib.util.find_spec("tensorflow.python.ipu") is not None
    except ModuleNotFoundError:
        return False


def use_device(device: str) -> None:
    """Make TensorFlow see the devices that the config names."""
    gpus = tf.config.list_physical_devices("GPU")
    if device == "gpu" and not gpus:
        raise UserError("execution.device is gpu, but TensorFlow sees none; install requirements-cuda.txt or use cpu")
    if device == "cpu" and gpus:
        tf.config.set_visible_devices([], "GPU")
    for gpu in gpus if device != "cpu" else []:
        tf.config.experimental.set_memory_growth(gpu, True)
