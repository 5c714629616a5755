"""What a config asks of the machine, in one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple


@dataclass(frozen=True)
class ExecutionOptions:
    """Where and how a run executes.

    Attributes:
        platform: ``auto``, ``software`` or ``graphcore``.
        device: ``auto``, ``cpu`` or ``gpu``.
        xla: compile with XLA; None takes what was measured faster.
        threads: CPU threads of one operation; None takes all cores.
        seed: of dropout.
        micro_batch_size: rows of a micro batch.
        precision: of weights and computation; ``auto`` takes what the platform is made for.
        recompute: recompute the encoder layers' activations in the backward pass.
        device_mapping: IPU of each pipeline stage; empty for a model without stages.
        pipeline_devices: devices onto which those IPUs are spread; None takes all GPUs, or the one CPU.
        pipeline_schedule: ``grouped``, ``interleaved`` or ``sequential``.
        replicas: copies of the model that train side by side.
        matmul_proportions: share of its memory that each IPU may use for temporaries of matrix products; empty leaves
            it to the compiler.
        matmul_partials: ``half`` or ``float``, number format of partial sums.
        optimizer_state_offchip: keep moments outside the device's memory.
        replicated_tensor_sharding: keep 1/replicas of the moments on each replica.
        stochastic_rounding: round float16 weight updates at random.
        outlining: compile the code of the encoder layers once.
        fp_exceptions: stop at the first floating-point exception.
        min_remote_tensor_size: smallest tensor, in bytes, that is kept outside the device's memory.
        compile_only: compile without a device.
        executable_cache: folder in which compiled programs are kept.
    """

    platform: str = "software"
    device: str = "auto"
    xla: Optional[bool] = None
    threads: Optional[int] = None
    seed: int = 0
    micro_batch_size: int = 1
    precision: str = "auto"
    recompute: bool = False
    device_mapping: Tuple[int, ...] = ()
    pipeline_devices: Optional[int] = None
    pipeline_schedule: str = "grouped"
    replicas: int = 1
    matmul_proportions: Tuple[float, ...] = ()
    matmul_partials: str = "half"
    optimizer_state_offchip: bool = False
    replicated_tensor_sharding: bool = False
    stochastic_rounding: bool = False
    outlining: bool = False
    fp_exceptions: bool = False
    min_remote_tensor_size: int = 50000
    compile_only: bool = False
    executable_cache: Optional[str] = None
