"""Selects the platform and the processes that a config asks for."""

from __future__ import annotations

import functools
from typing import Callable, Optional

from execution.interface import ExecutionOptions, Platform
from execution.processes import SINGLE_PROCESS, Processes
from execution.software.cluster.membership import read_membership  # room: cluster
from execution.software.cluster.process_group import ClusterProcesses  # room: cluster
from utilities.environment import (
    graphcore_installed,  # room: graphcore
    is_graphcore,
)
from utilities.errors import UserError


def select_platform(options: ExecutionOptions, processes: Optional[Processes] = None) -> Platform:
    """Return the platform that the config names, and join the processes.

    Call it before anything else uses TensorFlow, because the first use fixes threads and devices. It is a ``UserError``
    if the machine does not have what the options require.
    """
    if is_graphcore(options.platform):
        if graphcore_installed():  # room: graphcore
            from graphcore.platform import GraphcorePlatform  # room: graphcore

            return GraphcorePlatform(options, processes)  # room: graphcore
        raise UserError(
            "execution.platform is graphcore, but this Python has no Graphcore TensorFlow; install the wheels of its"
            " Poplar SDK (TensorFlow 2.6, Keras, ipu_tensorflow_addons), or set execution.platform to software"
        )
    from execution.software.devices import on_gpu, use_device, use_threads
    from execution.software.inference import InferencePlatform, is_fused
    from execution.software.platform import SoftwarePlatform
    from execution.software.precision import FLOAT32, choose_numerics, fast_formats
    from pipeline.platform import spread  # room: pipeline

    platform: Callable[..., Platform] = SoftwarePlatform
    devices = 1
    try:
        use_device(options.device)
        platform, devices = spread(options)  # room: pipeline
        parallel = 1 if on_gpu() else options.parallel_micro_batches
        use_threads(options.threads, parallel, devices)
    except RuntimeError as error:  # only a program that calls the trainer has used TensorFlow before
        raise UserError(
            f"execution: {error} TensorFlow's first use in a process fixes devices and threads; restart Python to"
            " change them"
        ) from error
    processes = processes or SINGLE_PROCESS
    processes.join()
    with processes.together():
        numerics = choose_numerics(
            options.precision, fast_formats(bool(options.xla)), options.stochastic_rounding, options.fp_exceptions
        )
    # XLA has no fast products of bfloat16 on CPUs. In float32 with fused parts between TensorFlow's products, an update
    # of BERT-base took 6.70 instead of 7.39 processor seconds with XLA for all of it, and 3,490 instead of 3,965 MiB;
    # of BERT-mini 0.46 instead of 0.49 s, and 1,272 instead of 1,464 MiB (2 cores with AVX-512, 128 tokens).
    is_plain_float32 = numerics.precision == FLOAT32 and not on_gpu() and options.has_fused_parts
    fused_float32 = options.xla is None and is_plain_float32
    xla = (on_gpu() or not (numerics.is_mixed or fused_float32)) if options.xla is None else options.xla
    if options.only_predicts and not (xla or on_gpu() or options.fp_exceptions) and is_fused():
        platform = functools.partial(InferencePlatform, constant_weights=options.constant_weights)
    return platform(
        seed=options.seed,
        xla=xla,
        recompute=options.recompute,
        parallel_micro_batches=parallel,
        numerics=numerics,
        processes=processes,
        sharded=options.replicated_tensor_sharding,
        state_device="/CPU:0" if options.optimizer_state_offchip and on_gpu() else None,  # host memory
        fused_float32=fused_float32,
    )


def processes_for(platform: str) -> Processes:
    """Return the processes that train together, not yet joined: the environment's or, on IPUs, PopRun's."""
    if not is_graphcore(platform):  # room: cluster
        return ClusterProcesses(read_membership())  # room: cluster
    if is_graphcore(platform) and graphcore_installed():  # room: graphcore
        from graphcore.platform import instances  # room: graphcore

        return instances()  # room: graphcore
    return Processes()
