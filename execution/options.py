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
        recompute: recompute the encoder layers' activations in the backward pass.
        device_mapping: IPU of each pipeline stage; empty for a model without stages.
        pipeline_devices: devices onto which those IPUs are spread; None takes all GPUs, or the one CPU.
        pipeline_schedule: ``grouped``, ``interleaved`` or ``sequential``.
    """

    platform: str = "software"
    device: str = "auto"
    xla: Optional[bool] = None
    threads: Optional[int] = None
    seed: int = 0
    recompute: bool = False
    device_mapping: Tuple[int, ...] = ()
    pipeline_devices: Optional[int] = None
    pipeline_schedule: str = "grouped"
