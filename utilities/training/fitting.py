"""The training of a built model: its length, its data, and Keras' ``fit``."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Sequence

from data_utils.records.pipeline import SampleReader, raise_data_errors, training_dataset
from execution.interface import Platform, Update
from keras_extensions.callbacks.checkpoints import Checkpoints
from keras_extensions.callbacks.executions import PerExecutionMetrics
from keras_extensions.callbacks.reporting import Listener, Period, Reporting
from model.architecture import Architecture
from utilities.checkpoints.state import save_checkpoint
from utilities.config.figures import training_steps
from utilities.config.schema import TrainingConfig
from utilities.errors import UserError
from utilities.training.optimizer import make_optimizer
from utilities.training.run_folder import RunFolder
from utilities.training.task import BuiltModel, Task

logger = logging.getLogger(__name__)


class Plan(NamedTuple):
    """Lengths that the config and the data give."""

    updates: int
    updates_per_execution: int
    micro_batches: int


@dataclasses.dataclass(frozen=True)
class Session:
    """What a run is made of.

    Attributes:
        listeners: told of everything worth telling.
        started: ``time.perf_counter()`` when the program started.
    """

    config: TrainingConfig
    task: Task
    architecture: Architecture
    platform: Platform
    run: RunFolder
    listeners: Sequence[Listener]
    started: float


class TrainingData(NamedTuple):
    """The samples to train on, how many updates they make, and what the report says of them."""

    reader: SampleReader
    plan: Plan
    facts: Dict[str, Any]


def open_training_data(config: TrainingConfig, task: Task) -> TrainingData:
    """Open and check the data, and plan the run over it.

    Raises:
        UserError: the data is not what the config says, or less than one update.
    """
    reader = task.open_data()
    return TrainingData(reader, plan_run(config, reader), task.dataset_facts(reader))


def plan_run(config: TrainingConfig, reader: SampleReader) -> Plan:
    """Number of updates, and how they are grouped.

    Raises:
        UserError: the data is less than one update.
    """
    updates = training_steps(config, reader.count)
    if not updates:
        raise UserError(
            f"the data set's {reader.count:,} records are less than one global batch of"
            f" {config.samples_per_update:,}; lower global_batch.grad_acc_steps_per_replica or raise num_epochs"
        )
    batch = config.global_batch
    return Plan(
        updates=updates,
        updates_per_execution=min(config.global_batches_per_log, updates),
        micro_batches=batch.replicas * batch.grad_acc_steps_per_replica,
    )


def update_of(session: Session, plan: Plan) -> Update:
    """How the micro batches of an update are combined."""
    options = session.config.optimizer_opts
    return Update(
        micro_batches=plan.micro_batches,
        virtual_replicas=session.config.global_batch.replicas,
        reduction=options.gradient_accumulation_reduction,
        loss_scale=options.loss_scaling or 1.0,
    )


def data_of(session: Session, data: TrainingData) -> Any:
    """The data of the whole run, as ``tf.data``."""
    config = session.config
    return training_dataset(
        data.reader,
        micro_batch_size=config.global_batch.micro_batch_size,
        micro_batches_per_update=data.plan.micro_batches,
        seed=config.seed,
        num_updates=data.plan.updates,
        shuffle=config.data.shuffle,
        reader_threads=config.data.reader_threads,
        prefetch=config.data.prefetch,
    )


class LastPeriod(Listener):
    """Remembers the last logging period."""

    def __init__(self) -> None:
        self.last: Optional[Period] = None

    def period(self, period: Period) -> None:
        self.last = period


def fit(session: Session, data: TrainingData, built: BuiltModel) -> Optional[Period]:
    """Train with Keras' ``fit``, or only compile where the config asks for no more.

    Returns:
        The last logging period; None if nothing was trained.
    """
    config, plan, platform = session.config, data.plan, session.platform
    optimizer = make_optimizer(config, plan.updates)
    update = update_of(session, plan)
    platform.compile(built.model, optimizer, session.task.objective, update, plan.updates_per_execution)
    if config.compile_only:
        platform.compile_step(built.model, data_of(session, data).element_spec)
        logger.info("compiled; not training, as compile_only asks")
        return None
    memory = LastPeriod()
    reporting = Reporting(
        total_steps=plan.updates,
        samples_per_step=config.samples_per_update,
        listeners=[memory, *session.listeners],
        steps_per_period=plan.updates_per_execution,
        started=session.started,
    )
    callbacks = [PerExecutionMetrics(), reporting, checkpoints_of(session, plan, built, optimizer)]
    try:
        with raise_data_errors(data.reader):
            built.model.fit(data_of(session, data), steps_per_epoch=plan.updates, verbose=0, callbacks=callbacks)
    finally:
        reporting.close()
    assert memory.last is not None, "a plan has at least one update"
    return memory.last


def checkpoints_of(session: Session, plan: Plan, built: BuiltModel, optimizer: Any) -> Checkpoints:
    """The callback that saves."""
    config = session.config
    folder = Path(config.save_ckpt_path) if config.save_ckpt_path else session.run.checkpoints
    facts = {
        "task": session.task.name,
        "architecture": dataclasses.asdict(session.architecture),
        "seed": config.seed,
    }

    def save(step: int) -> None:
        written = save_checkpoint(folder, step, built.blocks, optimizer, facts)
        logger.info("checkpoint %s", written)
        for listener in session.listeners:
            listener.wrote("checkpoint", written)

    return Checkpoints(save, config.ckpt_every_n_steps_per_execution * plan.updates_per_execution)
