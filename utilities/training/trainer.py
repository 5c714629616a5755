"""The one trainer: from a resolved config and a task to a trained model, its checkpoints and its report."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from data_utils.records.pipeline import SampleReader, raise_data_errors, training_dataset
from execution.interface import Platform, Update
from execution.select import select_platform
from keras_extensions.backend import keras
from keras_extensions.callbacks.checkpoints import Checkpoints
from keras_extensions.callbacks.executions import PerExecutionMetrics
from keras_extensions.callbacks.progress import run_log
from keras_extensions.callbacks.reporting import Listener, Period, Reporting
from model.architecture import Architecture
from utilities.checkpoints.folder import Checkpoint, find_checkpoint
from utilities.checkpoints.state import load_weights, save_checkpoint
from utilities.config.figures import training_steps
from utilities.config.loading import LoadedConfig
from utilities.config.schema import TrainingConfig
from utilities.errors import UserError
from utilities.report.page import write_report
from utilities.training.architecture import resolved_architecture
from utilities.training.listeners import listeners_of
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
        started: ``time.perf_counter()`` when the program started.
    """

    config: TrainingConfig
    task: Task
    architecture: Architecture
    platform: Platform
    reader: SampleReader
    plan: Plan
    run: RunFolder
    started: float


def train(loaded: LoadedConfig, task: Task, started: float) -> int:
    """Train as the config says.

    Args:
        loaded: the config and the origin of its values.
        task: what is trained.
        started: ``time.perf_counter()`` when the program started.

    Returns:
        0.

    Raises:
        UserError: data, checkpoint or folder is not what the config says.
    """
    config = loaded.config
    start_from = find_checkpoint(Path(config.pretrained_ckpt_path)) if config.pretrained_ckpt_path else None
    architecture = resolved_architecture(config, start_from)
    platform = platform_of(config)
    reader = task.open_data()
    plan = plan_run(config, reader)
    run = RunFolder.create(config.output_dir, config.name)
    session = Session(config, task, architecture, platform, reader, plan, run, started)
    with run_log(run.path / "train.log", config.logging):
        facts = task.dataset_facts(reader)
        run.describe(loaded, plan._asdict(), facts)
        logger.info("run folder %s; %s", run.path, platform.describe())
        built = build(session, start_from)
        optimizer = make_optimizer(config, plan.updates)
        platform.compile(built.model, optimizer, task.objective, update_of(session), plan.updates_per_execution)
        if config.compile_only:
            platform.compile_step(built.model, data_of(session).element_spec)
            logger.info("compiled; not training, as compile_only asks")
        else:
            finish(session, fit(session, built, optimizer), facts)
    return 0


def platform_of(config: TrainingConfig) -> Platform:
    """The machine that the config asks for."""
    execution = config.execution
    return select_platform(
        execution.platform,
        execution.device,
        execution.xla,
        execution.threads,
        seed=config.seed,
        recompute=config.enable_recomputation,
    )


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


def build(session: Session, start_from: Optional[Checkpoint]) -> BuiltModel:
    """The converted model, with the weights of a checkpoint where one is given."""
    built = session.task.build(session.architecture, session.platform)
    parameters = f"{built.model.count_params():,} parameters"
    if built.conversion is None:
        logger.info("Hugging Face's BERT with its own layers, %s", parameters)
    else:
        logger.info("Hugging Face's BERT, converted, %s:", parameters)
        for line in built.conversion.table().splitlines():
            logger.info("  %s", line)
        session.run.write("conversion.json", [dataclasses.asdict(row) for row in built.conversion.rows])
    if start_from is not None:
        load_weights(start_from, built.blocks)
        logger.info("weights from %s", start_from.weights.parent)
    return built


def update_of(session: Session) -> Update:
    """How the micro batches of an update are combined."""
    options = session.config.optimizer_opts
    return Update(
        micro_batches=session.plan.micro_batches,
        virtual_replicas=session.config.global_batch.replicas,
        reduction=options.gradient_accumulation_reduction,
        loss_scale=options.loss_scaling or 1.0,
    )


def data_of(session: Session) -> Any:
    """The data of the whole run."""
    config = session.config
    return training_dataset(
        session.reader,
        micro_batch_size=config.global_batch.micro_batch_size,
        micro_batches_per_update=session.plan.micro_batches,
        seed=config.seed,
        num_updates=session.plan.updates,
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


def fit(session: Session, built: BuiltModel, optimizer: keras.optimizers.Optimizer) -> Period:
    """Train with Keras' ``fit``; returns the last logging period."""
    config, plan, run = session.config, session.plan, session.run
    memory = LastPeriod()
    reporting = Reporting(
        total_steps=plan.updates,
        samples_per_step=config.samples_per_update,
        listeners=[memory, *listeners_of(config, run)],
        steps_per_period=plan.updates_per_execution,
        started=session.started,
    )
    folder = Path(config.save_ckpt_path) if config.save_ckpt_path else run.checkpoints
    facts = {
        "task": session.task.name,
        "architecture": dataclasses.asdict(session.architecture),
        "seed": config.seed,
    }

    def save(step: int) -> None:
        logger.info("checkpoint %s", save_checkpoint(folder, step, built.blocks, optimizer, facts))

    checkpoints = Checkpoints(save, config.ckpt_every_n_steps_per_execution * plan.updates_per_execution)
    callbacks = [PerExecutionMetrics(), reporting, checkpoints]
    try:
        with raise_data_errors(session.reader):
            built.model.fit(data_of(session), steps_per_epoch=plan.updates, verbose=0, callbacks=callbacks)
    finally:
        reporting.close()
    assert memory.last is not None, "a plan has at least one update"
    return memory.last


def finish(session: Session, last: Period, facts: Dict[str, Any]) -> None:
    """Say what came out, and write the report."""
    lines: List[str] = session.task.summary(last.metrics, facts)
    for line in lines:
        logger.info(line)
    if not session.config.report:
        return
    try:
        logger.info("report: %s", write_report(session.run.path))
    except (UserError, OSError) as error:  # the training is done and saved; a page must not make it a failure
        logger.warning("no report: %s; try again: python -m utilities.report %s", error, session.run.path)
