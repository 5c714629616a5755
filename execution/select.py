"""Which machine a run gets."""

from __future__ import annotations

import importlib.util
from typing import Optional

from execution.interface import Platform
from execution.options import ExecutionOptions
from execution.software.cluster.processes import ALONE, Processes
from utilities.errors import UserError

# As measured with micro batch 8, sequence 128, dropout and AdamW on 2 cores with AVX-512: XLA was faster than graph
# execution by 20 % at a hidden size of 128, 8 % at 256, 6 % at 512, equal at 768.
XLA_WINS = True


def select_platform(options: ExecutionOptions, processes: Optional[Processes] = None) -> Platform:
    """The platform that the config names, ready to build models on.

    Must be called before anything else uses TensorFlow, because threads and devices are fixed by the first use.

    Args:
        options: what the config asks for.
        processes: that train together; on stock TensorFlow waits until all are there. None: this one alone.

    Raises:
        UserError: the machine lacks what is asked for.
    """
    if options.platform == "graphcore" and not graphcore_installed():
        raise UserError(
            "execution.platform is graphcore, but this Python has no Graphcore TensorFlow; install the wheels of its"
            " Poplar SDK (TensorFlow 2.6, Keras, ipu_tensorflow_addons), or set execution.platform to software"
        )
    if _is_graphcore(options.platform):
        from execution.graphcore.platform import GraphcorePlatform

        return GraphcorePlatform(options, processes)
    from execution.software.devices import pipeline_devices, stage_devices, state_device, use_device, use_threads
    from execution.software.platform import PipelineLayout, SoftwarePlatform
    from execution.software.precision import has_tensor_cores, numerics

    use_device(options.device)
    devices = pipeline_devices(options.pipeline_devices)
    use_threads(options.threads, len(devices))
    processes = processes or ALONE
    processes.join()
    layout = PipelineLayout(stage_devices(options.device_mapping, devices), options.pipeline_schedule)
    xla = XLA_WINS if options.xla is None else options.xla
    return SoftwarePlatform(
        seed=options.seed,
        xla=xla,
        recompute=options.recompute,
        layout=layout,
        numerics=numerics(options.precision, has_tensor_cores(), options.stochastic_rounding, options.fp_exceptions),
        processes=processes,
        sharded=options.replicated_tensor_sharding,
        state_device=state_device(options.optimizer_state_offchip),
    )


def processes_for(platform: str) -> Processes:
    """The processes that train together, not yet joined: those of the environment or, on IPUs, those of PopRun.

    Args:
        platform: ``execution.platform`` of the config.
    """
    if not _is_graphcore(platform):
        return Processes.of()
    if not graphcore_installed():
        return ALONE  # select_platform says what is missing
    from execution.graphcore.platform import instances

    return instances()


def _is_graphcore(platform: str) -> bool:
    return platform == "graphcore" or (platform == "auto" and graphcore_installed())


def graphcore_installed() -> bool:
    """Whether this is Graphcore's TensorFlow."""
    try:
        return importlib.util.find_spec("tensorflow.python.ipu") is not None
    except ModuleNotFoundError:
        return False
