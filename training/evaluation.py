"""Evaluation: of the model while it trains, and of the best checkpoint at the end."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from checkpoints.folder import Checkpoint
from keras_extensions.backend import keras
from keras_extensions.listeners.checkpoint_timer import CheckpointTimer
from keras_extensions.listeners.reporting import Evaluation, Reporting
from training.checkpointing import RunCheckpoints, best_checkpoint
from training.chief import shared_position
from training.prediction import InterruptedEvaluation, Predictor, evaluation_batch_size
from training.resume import Position
from training.run_context import RunContext, TrainingData
from training.task import BuiltModel
from utilities.metric_names import is_loss
from utilities.run_names import SCORES

logger = logging.getLogger(__name__)


def make_predictor(
    context: RunContext, model: keras.Model, interrupted: Callable[[], bool] = lambda: False
) -> Predictor:
    """Return what runs the model over a data set, in batches of the size that config and machine give."""
    config, platform = context.config, context.platform
    batch_size = evaluation_batch_size(config.evaluation_batch_size, config.global_batch.micro_batch_size, platform)
    return Predictor(model, batch_size, platform, interrupted)


# After training


def evaluate(context: RunContext, built: BuiltModel) -> Dict[str, float]:
    """Run validation and test, and write ``scores.json``; return the scores, which only the chief has."""
    scores = context.task.evaluate(make_predictor(context, built.model), context.run.path)
    if not context.processes.is_chief:
        return {}
    if scores:
        context.run.write(SCORES, scores)
        for listener in context.listeners:
            listener.scored(scores)
        for name, score in scores.items():
            # "mlm_loss: 1.2" is the form of a logging period, which scripts parse.
            logger.info("%s%s %.4f", name, " of the evaluation is" if name.startswith(("mlm_", "nsp_")) else ":", score)
    return scores


# While training


class Record(NamedTuple):
    """An evaluation: the number of updates before it, and the score that decides which evaluation is best."""

    step: int
    score: float


def find_best_step(records: Sequence[Record], metric: str) -> Optional[int]:
    """Return the step of the first best evaluation; None if there is none."""
    sign = -1 if is_loss(metric) else 1
    finite = [record for record in records if math.isfinite(record.score)]
    return max(finite, key=lambda record: sign * record.score).step if finite else None


def deciding_metric(context: RunContext) -> str:
    """Return the score by which the evaluations of a run are compared."""
    return context.config.evaluation.metric or context.task.metrics(context.config)[0]


def recorded_evaluations(context: RunContext) -> List[Record]:
    return [Record(*record) for record in context.run.evaluations(deciding_metric(context))]


def checkpoint_to_evaluate(context: RunContext) -> Optional[Checkpoint]:
    """Return the checkpoint of a resumed run that is not trained: the best one, else the newest; all processes call it.

    None: the run is not resumed.
    """
    position = context.position
    if position.checkpoint is None or context.config.evaluation.every is None:
        return position.checkpoint

    def best() -> Position:
        step = find_best_step(recorded_evaluations(context), deciding_metric(context))
        return dataclasses.replace(position, checkpoint=best_checkpoint(context, step) or position.checkpoint)

    return shared_position(context.processes, best).checkpoint


class EvaluateWhileTraining:
    """Evaluates the model according to the config's ``evaluation``, keeps the best checkpoint, and stops early.

    All of this follows from the evaluations in metrics.jsonl, so a resumed run decides as an uninterrupted one does.
    The chief of several processes evaluates and broadcasts the scores.
    """

    def __init__(
        self,
        context: RunContext,
        data: TrainingData,
        model: keras.Model,
        checkpoints: RunCheckpoints,
        timer: CheckpointTimer,
        reporting: Reporting,
    ) -> None:
        config = context.config
        every = config.evaluation.every
        assert every is not None
        self._context, self._plan = context, data.plan
        self._checkpoints, self._timer, self._reporting = checkpoints, timer, reporting
        self._metric = deciding_metric(context)
        self._rows_between = data.reader.count if every == "epoch" else every * config.samples_per_update
        self._predict = make_predictor(context, model, self._interrupted)
        records = context.processes.decide(lambda: recorded_evaluations(context))
        self._records = [Record(*record) for record in records]
        best = find_best_step(self._records, self._metric)  # a rewind may have discarded a better one
        checkpoints.writer.best = best
        if best is not None:
            checkpoints.keep_as_best(best)

    def catch_up(self, step: int) -> bool:
        """Make up for an evaluation that an interruption or a longer call prevented; return whether training ends."""
        if self._is_due(step, step - (self._plan.updates_per_period if self._context.platform.has_fixed_calls else 1)):
            return self._evaluate(step)
        return self._patience_is_over()

    def next_step(self, step: int) -> int:
        """Return the number of updates after which the next evaluation is due, if ``step`` updates are done."""
        rows = self._context.config.samples_per_update
        intervals = step * rows // self._rows_between + 1
        return -(-intervals * self._rows_between // rows)

    def evaluate_if_due(self, step: int, before: int) -> bool:
        """Evaluate the present state if that was due in the updates since ``before``; return whether training ends."""
        if not self._is_due(step, before):
            return False
        started = time.perf_counter()
        ends = self._evaluate(step)
        self._reporting.exclude_time(time.perf_counter() - started)
        return ends

    def _is_due(self, step: int, before: int) -> bool:
        """Return whether an evaluation was due since ``before`` and was not made, or training ends."""
        last = self._records[-1].step if self._records else 0
        return self.next_step(max(last, before)) <= step or last < step == self._plan.updates

    def _patience_is_over(self) -> bool:
        patience, best = self._context.config.evaluation.patience, find_best_step(self._records, self._metric) or 0
        return patience is not None and sum(record.step > best for record in self._records) >= patience

    def _evaluate(self, step: int) -> bool:
        """Evaluate, in all processes, save the state if it is the best one, and return whether training ends."""
        context = self._context
        local = self._scores() if context.platform.all_processes_predict else None
        scores = context.processes.decide(lambda: self._scores() if local is None else local)
        if scores is None:
            return True
        self._records.append(Record(step, scores[self._metric]))
        is_best = find_best_step(self._records, self._metric) == step
        samples = round(step * context.config.samples_per_update * self._plan.packing_factor)
        evaluation = Evaluation(step, self._plan.updates, samples, scores, is_best)
        for listener in context.listeners:
            listener.evaluated(evaluation)
        if is_best:
            self._checkpoints.keep_as_best(step)
            self._timer.save_unsaved()
        ends = self._patience_is_over()
        if ends:
            logger.info("%s has not become better in %d evaluations", self._metric, context.config.evaluation.patience)
        return ends

    def _scores(self) -> Optional[Dict[str, float]]:
        """Return the scores of the present state; None if the run was asked to stop meanwhile."""
        try:
            return self._context.task.evaluate(self._predict, None)
        except InterruptedEvaluation:
            return None

    def _interrupted(self) -> bool:
        # If all processes predict together, none may stop early.
        return self._context.stop.signal is not None and not self._context.platform.all_processes_predict
