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
from keras_extensions.callbacks.divergence import StopOnDivergence
from keras_extensions.callbacks.executions import PerExecutionMetrics
from keras_extensions.callbacks.metrics_file import MetricsFile
from keras_extensions.callbacks.progress import Progress, run_log
from keras_extensions.callbacks.reporting import Listener, Period, Reporting
from keras_extensions.callbacks.tensorboard import TensorBoardScalars
from keras_extensions.callbacks.wandb_run import WandbRun
from model.architecture import Architecture
from utilities.checkpoints.folder import Checkpoint, find_checkpoint
from utilities.checkpoints.state import load_weights, save_checkpoint
from utilities.config.figures import training_steps
from utilities.config.loading import LoadedConfig
from utilities.config.schema import TrainingConfig
from utilities.errors import UserError
from utilities.report.page import write_report
from utilities.training.architecture import resolved_architecture
from utilities.training.optimizer import make_optimizer
from utilities.training.run_folder import RunFolder
from utilities.training.task import BuiltModel, Task

logger = logging.getLogger(__name__)


class Plan(NamedTuple):
    """Lengths that the config and the data give."""

    updates: int
    updates_per_execution: int
    micro_batches: int


class LastPeriod(Listener):
    """Remembers the last logging period."""

    def __init__(self) -> None:
        self.period_done: Optional[Period] = None

    def period(self, period: Period) -> None:
        self.period_done = period


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
    platform = select_platform(
        config.execution.platform,
        config.execution.device,
        config.execution.xla,
        config.execution.threads,
        seed=config.seed,
        recompute=config.enable_recomputation,
    )
    start_from = find_checkpoint(Path(config.pretrained_ckpt_path)) if config.pretrained_ckpt_path else None
    architecture = resolved_architecture(config, start_from)
    reader = task.open_data()
    plan = plan_run(config, reader)
    run = RunFolder.create(config.output_dir, config.name)
    with run_log(run.path / "train.log", config.logging):
        facts = task.dataset_facts(reader)
        run.describe(loaded, plan._asdict(), facts)
        logger.info("run folder %s; %s", run.path, platform.describe())
        built = build(task, architecture, platform, start_from)
        if built.conversion is not None:
            run.write("conversion.json", [dataclasses.asdict(row) for row in built.conversion.rows])
        optimizer = make_optimizer(config, plan.updates)
        prepare(config, platform, built.model, optimizer, task, plan)
        if config.compile_only:
            platform.compile_step(built.model, element_of(config, reader, plan))
            logger.info("compiled; not training, as compile_only asks")
            return 0
        last = fit(config, run, built, optimizer, reader, plan, started, architecture, task)
        finish(config, run, task, last, facts)
    return 0


def plan_run(config: TrainingConfig, reader: SampleReader) -> Plan:
    """Number of updates, and how they are grouped."""
    updates = training_steps(config, reader.count)
    if not updates:
        raise UserError(
            f"the data set's {reader.count:,} records are less than one global batch of {config.samples_per_update:,};"
            " lower global_batch.grad_acc_steps_per_replica or raise num_epochs"
        )
    batch = config.global_batch
    return Plan(
        updates=updates,
        updates_per_execution=min(config.global_batches_per_log, updates),
        micro_batches=batch.replicas * batch.grad_acc_steps_per_replica,
    )


def build(task: Task, architecture: Architecture, platform: Platform, start_from: Optional[Checkpoint]) -> BuiltModel:
    """The converted model, with the weights of a checkpoint where one is given."""
    built = task.build(architecture, platform)
    parameters = f"{built.model.count_params():,} parameters"
    if built.conversion is None:
        logger.info("Hugging Face's BERT with its own layers, %s", parameters)
    else:
        logger.info("Hugging Face's BERT, converted, %s:", parameters)
        for line in built.conversion.table().splitlines():
            logger.info("  %s", line)
    if start_from is not None:
        load_weights(start_from, built.blocks)
        logger.info("weights from %s", start_from.weights.parent)
    return built


def prepare(
    config: TrainingConfig,
    platform: Platform,
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    task: Task,
    plan: Plan,
) -> None:
    """Compile the model for ``fit``."""
    update = Update(
        micro_batches=plan.micro_batches,
        virtual_replicas=config.global_batch.replicas,
        reduction=config.optimizer_opts.gradient_accumulation_reduction,
        loss_scale=config.optimizer_opts.loss_scaling or 1.0,
    )
    platform.compile(model, optimizer, task.objective, update, plan.updates_per_execution)


def dataset_of(config: TrainingConfig, reader: SampleReader, plan: Plan) -> Any:
    """The data of the whole run."""
    return training_dataset(
        reader,
        micro_batch_size=config.global_batch.micro_batch_size,
        micro_batches_per_update=plan.micro_batches,
        seed=config.seed,
        num_updates=plan.updates,
        shuffle=config.data.shuffle,
        reader_threads=config.data.reader_threads,
        prefetch=config.data.prefetch,
    )


def element_of(config: TrainingConfig, reader: SampleReader, plan: Plan) -> Any:
    """Shapes and types of one update's data."""
    return dataset_of(config, reader, plan).element_spec


def fit(
    config: TrainingConfig,
    run: RunFolder,
    built: BuiltModel,
    optimizer: keras.optimizers.Optimizer,
    reader: SampleReader,
    plan: Plan,
    started: float,
    architecture: Architecture,
    task: Task,
) -> Period:
    """Train with Keras' ``fit``; returns the last logging period."""
    folder = Path(config.save_ckpt_path) if config.save_ckpt_path else run.checkpoints
    facts = {"task": task.name, "architecture": dataclasses.asdict(architecture), "seed": config.seed}
    last = LastPeriod()
    reporting = Reporting(
        total_steps=plan.updates,
        samples_per_step=config.samples_per_update,
        listeners=[last, *listeners_of(config, run)],
        steps_per_period=plan.updates_per_execution,
        started=started,
    )

    def save(step: int) -> None:
        path = save_checkpoint(folder, step, built.blocks, optimizer, facts)
        logger.info("checkpoint %s", path)

    every = config.ckpt_every_n_steps_per_execution * plan.updates_per_execution
    callbacks = [PerExecutionMetrics(), reporting, Checkpoints(save, every)]
    try:
        with raise_data_errors(reader):
            built.model.fit(
                dataset_of(config, reader, plan), steps_per_epoch=plan.updates, verbose=0, callbacks=callbacks
            )
    finally:
        reporting.close()
    assert last.period_done is not None, "a plan has at least one update"
    return last.period_done


def listeners_of(config: TrainingConfig, run: RunFolder) -> List[Listener]:
    """Who is told of each logging period."""
    listeners: List[Listener] = [Progress(), MetricsFile(run.path / "metrics.jsonl")]
    if config.tensorboard:
        listeners.append(TensorBoardScalars(run.path / "tensorboard"))
    if config.enable_wandb:
        settings = config.model_dump(mode="json", exclude={"extends", "about"})
        project, entity, tags = config.wandb_project_name, config.wandb_entity_name, config.wandb_tags
        listeners.append(WandbRun(run.path, run.path.name, settings, project, entity, tags))
    return [*listeners, StopOnDivergence()]


def finish(config: TrainingConfig, run: RunFolder, task: Task, last: Period, facts: Dict[str, Any]) -> None:
    """Write the report and say what came out."""
    for line in task.summary(last.metrics, facts):
        logger.info(line)
    if config.report:
        logger.info("report: %s", write_report(run.path))
