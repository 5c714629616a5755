"""The training of a built model: its length, its data, and Keras' ``fit``."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, Optional

from checkpoints.state import TrainingState
from data_utils.records.packs import sequences_per_pack
from data_utils.records.pipeline import SampleReader, identity_of, raise_data_errors, training_dataset
from execution.interface import Update
from keras_extensions.callbacks.divergence import DivergenceError, StopOnDivergence
from keras_extensions.callbacks.executions import PerExecutionMetrics
from keras_extensions.callbacks.overflows import Overflows
from keras_extensions.callbacks.reporting import Listener, Period, Reporting, Rows
from keras_extensions.callbacks.signals import StopWhenAsked
from model.losses import SEQUENCES_PER_PACK, TOKENS_PER_PACK
from optimization.loss_scaling import INITIAL_SCALE
from training.corrupt_records import CorruptRecordsTold
from training.optimizer import optimizer_settings
from training.position import Position
from training.rewinding import rewind
from training.saving import Saver
from training.session import Plan, Session, TrainingData
from training.sparsity import pattern_callbacks
from training.task import BuiltModel, Task
from training.together import agreed_position
from utilities.config.figures import betas, is_packed, training_steps
from utilities.config.schema import TrainingConfig
from utilities.errors import Stopped, UserError

logger = logging.getLogger(__name__)

PACK_CONTENTS = {"samples": SEQUENCES_PER_PACK, "others": {"tokens": TOKENS_PER_PACK}}


def open_training_data(config: TrainingConfig, task: Task) -> TrainingData:
    """Open and check the data, and plan the run over it.

    Raises:
        UserError: the data is not what the config says, or less than one update.
    """
    reader = task.open_data()
    plan, facts = plan_run(config, reader), task.dataset_facts(reader)
    return TrainingData(reader, plan, facts, identity_of(reader))


def plan_run(config: TrainingConfig, reader: SampleReader) -> Plan:
    """Number of updates, and how they are grouped.

    Raises:
        UserError: the data is less than one update.
    """
    factor = sequences_per_pack(reader)
    updates = training_steps(config, reader.count, factor)
    if not updates:
        raise UserError(
            f"training would be less than one global batch of {config.samples_per_update * factor:,.0f} samples (the"
            f" data set has {reader.count * factor:,.0f}); lower global_batch.grad_acc_steps_per_replica, or raise"
            " num_epochs or total_num_train_samples"
        )
    batch = config.global_batch
    return Plan(
        updates=updates,
        updates_per_execution=min(config.global_batches_per_log, updates),
        micro_batches=batch.replicas * batch.grad_acc_steps_per_replica,
        packing_factor=factor,
    )


def update_of(session: Session, plan: Plan) -> Update:
    """How the micro batches of an update are combined."""
    options = session.config.optimizer_opts
    reduction = options.gradient_accumulation_reduction
    if "gradient_accumulation_reduction" not in options.model_fields_set:
        reduction = session.platform.reduction
    adaptive = options.loss_scaling == "auto"
    processes = session.processes
    replicas = session.config.global_batch.replicas
    return Update(
        micro_batches=plan.micro_batches // processes.count,
        virtual_replicas=replicas if processes.is_alone else replicas / processes.count,
        reduction=reduction,
        loss_scale=INITIAL_SCALE if adaptive else options.loss_scaling or 1.0,
        adaptive_loss_scale=adaptive,
    )


def data_of(session: Session, data: TrainingData, position: Position) -> Any:
    """The data from a position to the end of the run, as ``tf.data``."""
    config = session.config
    return training_dataset(
        data.reader,
        micro_batch_size=config.global_batch.micro_batch_size,
        micro_batches_per_update=data.plan.micro_batches // session.processes.count,
        seed=config.seed,
        num_updates=data.plan.updates - position.step,
        first_update=position.step,
        shuffle=config.data.shuffle,
        reader_threads=config.data.reader_threads,
        prefetch=config.data.prefetch,
        replica=session.processes.index,
        replicas=session.processes.count,
        skipped=position.skipped,
    )


class LastPeriod(Listener):
    """Remembers the last logging period.

    Args:
        seconds: of training before the first one.
    """

    def __init__(self, seconds: float) -> None:
        self.last: Optional[Period] = None
        self._before = seconds

    @property
    def seconds(self) -> float:
        """Of training until then."""
        return self._before if self.last is None else self.last.seconds

    def period(self, period: Period) -> None:
        self.last = period


def fit(session: Session, data: TrainingData, built: BuiltModel) -> Optional[Period]:
    """Train with Keras' ``fit``, or only compile where the config asks for no more.

    Training begins at the session's position, and goes back where it diverges and the config says so. When this returns
    or raises ``Stopped``, the last state is on disk.

    Returns:
        The last logging period; None if nothing was trained.

    Raises:
        Stopped: someone asked for it.
        UserError: data, disk or divergence ended training.
    """
    config, plan, position = session.config, data.plan, session.position
    if is_packed(config):
        logger.info(
            "%.3f sequences in a pack; betas %.4g and %.4g", plan.packing_factor, *betas(config, plan.packing_factor)
        )
    optimizer = session.platform.optimizer(optimizer_settings(config, plan.updates, plan.packing_factor))
    update = update_of(session, plan)
    session.platform.compile(built.model, optimizer, session.task.objective, update, plan.updates_per_execution)
    if config.compile_only:
        session.platform.compile_step(built.model, data_of(session, data, position).element_spec)
        logger.info("compiled; not training, as compile_only asks")
        return None
    platform, variables = session.platform, built.model.trainable_variables
    state = TrainingState(built.blocks, platform.state(optimizer), variables, platform.other_state())
    state.parts = platform.parts(optimizer)
    processes = session.processes
    memory = LastPeriod(position.seconds)
    saver = Saver(session, data, state, position, lambda: memory.seconds)
    with contextlib.closing(saver.writer), session.stop.waiting(), processes.watched():
        if config.on_divergence == "rewind" and position.checkpoint is None:
            saver.writer.save(position.step)  # there must be something to go back to
        while saver.position.step < plan.updates:
            state.restore_together(saver.position.checkpoint, processes)
            try:
                fit_from(session, data, built, saver, memory)
                break
            except DivergenceError as error:
                saver.writer.wait()
                saver.position = rewound(session, saver, error)
        saver.writer.wait()
        processes.meet()
    if session.stop.signal is not None:
        step = saver.position.step if memory.last is None else memory.last.step
        raise Stopped(f"stopped by {session.stop.signal} at step {step:,} of {plan.updates:,}, which is saved")
    return memory.last


def rewound(session: Session, saver: Saver, error: DivergenceError) -> Position:
    """Where training goes on after a divergence, as the chief decides; all processes saw the same losses."""
    if session.config.on_divergence != "rewind":
        raise error
    position = agreed_position(session.processes, lambda: rewind(session, saver, error))
    assert position is not None
    return position


def fit_from(session: Session, data: TrainingData, built: BuiltModel, saver: Saver, memory: LastPeriod) -> None:
    """Train from the saver's position to the end, to the next divergence, or until someone asks to stop."""
    config, plan, position = session.config, data.plan, saver.position
    losses = session.task.objective.losses
    before = session.processes.decided(lambda: session.run.losses(losses))
    guard = StopOnDivergence(losses, config.exploding_loss_ratio, before)
    skipped = CorruptRecordsTold(data.reader, session.run.history)
    reporting = Reporting(
        total_steps=plan.updates,
        samples_per_step=config.samples_per_update * plan.packing_factor,
        # Last come those that may end the run, when the others have written what led to it.
        listeners=[memory, skipped, *session.listeners, Overflows(), guard],
        steps_per_period=plan.updates_per_execution,
        first_step=position.step,
        started=session.started,
        rows=Rows("packs", config.samples_per_update, **PACK_CONTENTS) if is_packed(config) else None,
        seconds_before=position.seconds,
    )
    callbacks = [
        PerExecutionMetrics(), *pattern_callbacks(session, data, built, position.step, position.skipped), reporting,
        saver.callback(plan.updates_per_execution, plan.updates),
        StopWhenAsked(session.stop, session.processes.largest),
    ]  # fmt: skip
    updates = plan.updates - position.step
    try:
        with raise_data_errors(data.reader):
            session.platform.fit(built.model, data_of(session, data, position), updates, callbacks)
    finally:
        reporting.close()
