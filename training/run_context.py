"""The objects that make up a run, and the plan of its training."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, NamedTuple, Sequence

from data_utils.records.packs import sequences_per_pack
from data_utils.records.pipeline import SampleReader, identify_samples
from execution.interface import Platform
from execution.processes import Processes
from keras_extensions.listeners.reporting import Listener
from keras_extensions.listeners.signals import StopRequest
from model.architecture import Architecture
from settings.derived import training_steps
from settings.schema import TrainingConfig
from teacher.identity import teacher_suffix  # room: teacher
from training.resume import Position
from training.run_folder import RunFolder
from training.task import Task
from utilities.errors import UserError


@dataclasses.dataclass(frozen=True)
class RunContext:
    """The objects that make up a run.

    Attributes:
        trained_positions: number of positions of the longest sequences that the weights are or were trained on.
        fits_data: whether ``max_seq_length`` is as long as the data need, so that it says nothing about other texts.
        started: ``time.perf_counter()`` when the program started.
    """

    config: TrainingConfig
    task: Task
    architecture: Architecture
    trained_positions: int
    platform: Platform
    run: RunFolder
    position: Position
    stop: StopRequest
    listeners: Sequence[Listener]
    started: float
    processes: Processes
    fits_data: bool


class Plan(NamedTuple):
    """The length of the training and the grouping of its updates; a row has ``packing_factor`` samples on average."""

    updates: int
    updates_per_period: int
    micro_batches: int
    packing_factor: float


class TrainingData(NamedTuple):
    """The samples to train on; ``identity`` is the checksum by which a resume knows them."""

    reader: SampleReader
    plan: Plan
    description: Dict[str, Any]
    identity: str


def open_training_data(config: TrainingConfig, task: Task) -> TrainingData:
    """Open and check the data, and plan the training on it."""
    reader = task.open_data()
    factor = sequences_per_pack(reader)
    updates = training_steps(config, reader.count, factor)
    if not updates:
        raise UserError(
            f"training would be less than one global batch of {config.samples_per_update * factor:,.0f} samples (the"
            f" data set has {reader.count * factor:,.0f}); lower {config.global_batch.lowered}, or raise num_epochs or"
            " total_num_train_samples"
        )
    plan = Plan(
        updates=updates,
        updates_per_period=min(config.global_batches_per_log, updates),
        micro_batches=config.global_batch.micro_batches,
        packing_factor=factor,
    )
    description = task.dataset_description(reader)
    identity = identify_samples(reader)
    identity += teacher_suffix(description)  # room: teacher
    return TrainingData(reader, plan, description, identity)
