"""What a run is made of."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, NamedTuple, Sequence

from data_utils.records.pipeline import SampleReader
from execution.interface import Platform
from execution.software.cluster.processes import ALONE, Processes
from keras_extensions.callbacks.reporting import Listener
from keras_extensions.callbacks.signals import StopRequest
from model.architecture import Architecture
from training.position import Position
from training.run_folder import RunFolder
from training.task import Task
from utilities.config.schema import TrainingConfig


class Plan(NamedTuple):
    """Lengths that the config and the data give.

    Attributes:
        micro_batches: of an update, over all replicas and processes.
        packing_factor: samples in a row of the batch on average; 1 without packing.
    """

    updates: int
    updates_per_execution: int
    micro_batches: int
    packing_factor: float = 1


@dataclasses.dataclass(frozen=True)
class Session:
    """A run.

    Attributes:
        position: where it begins or goes on.
        stop: whether someone asked it to stop.
        listeners: told of everything worth telling.
        started: ``time.perf_counter()`` when the program started.
        processes: that train together.
    """

    config: TrainingConfig
    task: Task
    architecture: Architecture
    platform: Platform
    run: RunFolder
    position: Position
    stop: StopRequest
    listeners: Sequence[Listener]
    started: float
    processes: Processes = ALONE


class TrainingData(NamedTuple):
    """The samples to train on.

    Attributes:
        reader: the samples.
        plan: how many updates they make.
        facts: what the report says of them.
        identity: a checksum by which a resume knows them again.
    """

    reader: SampleReader
    plan: Plan
    facts: Dict[str, Any]
    identity: str
