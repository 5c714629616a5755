"""The training of a model, from the run's position to its end, with rewinds in between."""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import Any, Optional

from checkpoints.state import TrainingState
from data_utils.records.pipeline import raise_data_errors, training_dataset
from keras_extensions.listeners.reporting import Listener, Period, Reporting
from keras_extensions.listeners.safeguards import DivergenceError, OverflowCounter, StopOnDivergence
from model.blocks import hidden_matrices
from training.checkpointing import RunCheckpoints, rewind
from training.chief import shared_position
from training.continuing import adopt_state
from training.evaluation import EvaluateWhileTraining
from training.initial_weights import InitialWeights
from training.machine import optimizer_settings, update_settings
from training.monitoring import CorruptRecords
from training.progress import TrainingProgress
from training.resume import Position
from training.rooms import LISTENERS
from training.run_context import RunContext, TrainingData
from training.task import BuiltModel
from utilities.errors import Stopped
from utilities.progress import waiting

logger = logging.getLogger(__name__)


class LastPeriod(Listener):
    def __init__(self, seconds: float) -> None:
        self.last: Optional[Period] = None
        self._seconds_before = seconds

    @property
    def seconds(self) -> float:
        return self._seconds_before if self.last is None else self.last.seconds

    def period(self, period: Period) -> None:
        self.last = period


class TrainingLoop:
    """Trains a model from given weights or, without a ``start``, from random ones."""

    def __init__(
        self, context: RunContext, data: TrainingData, built: BuiltModel, start: Optional[InitialWeights]
    ) -> None:
        self._context = context
        self._data = data
        self._built = built
        self._start = start
        self._memory = LastPeriod(context.position.seconds)

    def run(self) -> Optional[Period]:
        """Train to the end of the run; with ``compile_only``, only compile.

        When this method returns the last logging period (None if nothing was trained), or raises ``Stopped`` because
        the run was asked to stop, the last state is on disk.
        """
        context, plan, processes = self._context, self._data.plan, self._context.processes
        state = self._compile()
        adopt_state(context, self._start, self._built, self._optimizer)
        if context.config.compile_only:
            specification = self._dataset(context.position).element_spec
            context.platform.compile_step(self._built.model, specification)
            logger.info("compiled; not training, as compile_only asks")
            return None
        checkpoints = RunCheckpoints(context, self._data, state, lambda: self._memory.seconds)
        with contextlib.closing(checkpoints.writer), context.stop.defer(), processes.monitored():
            if context.config.on_divergence == "rewind" and checkpoints.position.checkpoint is None:
                checkpoints.writer.save(checkpoints.position.step)  # the first rewind may go back to the beginning
            while True:
                state.restore_on_all(checkpoints.position.checkpoint, processes)
                try:
                    self._train(checkpoints)
                    break
                except DivergenceError as error:
                    with waiting("writing the checkpoint"):
                        checkpoints.writer.wait()
                    if context.config.on_divergence != "rewind":
                        raise
                    go_back = functools.partial(rewind, context, checkpoints, error)
                    checkpoints.position = shared_position(processes, go_back)
            with waiting("writing the last checkpoint"):
                checkpoints.writer.wait()
            processes.barrier()
        last = self._memory.last
        if context.stop.signal is None:
            self._restore_best(checkpoints, state)
        else:
            step = checkpoints.position.step if last is None else last.step
            raise Stopped(context.stop.signal, f" at step {step:,} of {plan.updates:,}, which is saved")
        return last

    def _compile(self) -> TrainingState:
        """Compile the model, and return the state that training changes."""
        context, plan, built = self._context, self._data.plan, self._built
        config, platform = context.config, context.platform
        factor = plan.packing_factor
        settings = optimizer_settings(config, plan.updates, factor, hidden_matrices(built.blocks))
        if config.packing.is_on:
            logger.info("%.3f sequences in a pack; betas %.4g and %.4g", factor, settings.beta_1, settings.beta_2)
        optimizer = self._optimizer = platform.optimizer(settings)
        update = update_settings(config.global_batch, config.optimizer_opts, context.processes)
        platform.compile(built.model, optimizer, context.task.objective, update, plan.updates_per_period)
        state, others, shards = platform.state(optimizer), platform.other_state(), platform.shards(optimizer)
        return TrainingState(built.blocks, state, built.model.trainable_variables, others, shards)

    def _dataset(self, position: Position) -> Any:
        """Return the data from a position to the end of the run as a ``tf.data`` data set."""
        config, plan, processes = self._context.config, self._data.plan, self._context.processes
        return training_dataset(
            self._data.reader,
            micro_batch_size=config.global_batch.micro_batch_size,
            micro_batches_per_update=plan.micro_batches // processes.count,
            seed=config.seed,
            num_updates=plan.updates - position.step,
            first_update=position.step,
            shuffle=config.data.shuffle,
            reader_threads=config.data.reader_threads,
            prefetch=config.data.prefetch,
            replica=processes.index,
            replicas=processes.count,
            skipped=position.skipped,
        )

    def _train(self, checkpoints: RunCheckpoints) -> None:
        """Train from the position of a checkpoint to the end, to a divergence, or until the run is asked to stop."""
        context, data, plan, position = self._context, self._data, self._data.plan, checkpoints.position
        reporting, timer = self._reporting(position), checkpoints.timer()
        evaluation = None
        if context.config.evaluation.every is not None and not context.config.generated_dataset:
            evaluation = EvaluateWhileTraining(context, data, self._built.model, checkpoints, timer, reporting)
            if evaluation.catch_up(position.step):
                context.stop.agree(context.processes.maximum)
                return
        if position.step == plan.updates:  # an interruption left nothing else to do
            return
        progress = TrainingProgress(
            plan, position.step, self._optimizer, reporting, timer, evaluation, context.stop, context.processes
        )
        try:
            progress.begin()
            with raise_data_errors(data.reader):
                updates = plan.updates - position.step
                context.platform.train(self._built.model, self._dataset(position), updates, progress)
            progress.end()
        finally:
            reporting.end()

    def _reporting(self, position: Position) -> Reporting:
        context, plan, config = self._context, self._data.plan, self._context.config
        losses = context.task.objective.losses
        before = context.processes.decide(lambda: context.run.losses(losses))
        divergence = StopOnDivergence(losses, config.exploding_loss_ratio, before)
        corrupt_records = CorruptRecords(self._data.reader, context.run.history)
        of_rooms = [
            each for make in LISTENERS for each in make(context, self._data, self._built, self._optimizer, position)
        ]
        is_first = self._memory.last is None  # otherwise training continues after a rewind
        return Reporting(
            total_steps=plan.updates,
            samples_per_step=config.samples_per_update * plan.packing_factor,
            # The first may change the model; the last two may end the run, after others have written what led to it.
            listeners=[*of_rooms, self._memory, corrupt_records, *context.listeners, OverflowCounter(), divergence],
            first_step=position.step,
            started=context.started if is_first else None,
            packs_per_step=config.samples_per_update if config.packing.is_on else None,
            seconds_before=position.seconds,
            first_period="with compilation" if is_first else "counted from the rewind",
        )

    def _restore_best(self, checkpoints: RunCheckpoints, state: TrainingState) -> None:
        """Set the weights to those of the best checkpoint, if the model was evaluated while it trained."""
        processes = self._context.processes
        best = shared_position(processes, lambda: Position(checkpoint=checkpoints.best()))
        if best.checkpoint is not None:
            logger.info("the best evaluation was that of %s", best.checkpoint.folder.name)
            state.restore_on_all(best.checkpoint, processes)
