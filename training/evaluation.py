"""Evaluation: of the model while it trains, of the best checkpoint at the end, and prediction over a whole data set."""

from __future__ import annotations

import logging
import math
import time
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence

import numpy as np

from data_utils.records.packs import sequences_per_pack
from data_utils.records.pipeline import SampleReader, evaluation_dataset, raise_data_errors
from execution.interface import Platform
from keras_extensions.backend import keras
from keras_extensions.callbacks.checkpoints import Checkpoints
from keras_extensions.callbacks.progress import format_duration
from keras_extensions.callbacks.reporting import Evaluation, Reporting, UpdateCounter
from settings.schema import TrainingConfig
from training.checkpointing import Saver
from training.session import Session, TrainingData
from training.task import BuiltModel
from utilities.metric_names import is_loss

logger = logging.getLogger(__name__)

EVALUATION_BATCH_SIZE = 32
SECONDS_BETWEEN_LINES = 10.0


class InterruptedEvaluation(Exception):  # noqa: N818 (not an error)
    """The run was asked to stop during an evaluation."""


class Predictor:
    """Runs a model over all samples of a reader, in order.

    Args:
        model: the model, which returns a dict of outputs with one row per sample.
        batch_size: number of samples in a batch.
        interrupted: function that returns whether to stop; called after every execution.
    """

    def __init__(
        self,
        model: keras.Model,
        batch_size: int,
        platform: Platform,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._model = model
        self._batch_size = batch_size
        self._platform = platform
        self._interrupted = interrupted

    def __call__(self, reader: SampleReader) -> Dict[str, np.ndarray]:
        """Return the model's outputs by name, one row per sample."""
        # The last batch is padded; its additional rows are cut off.
        data = evaluation_dataset(reader, batch_size=self._batch_size, pad_last=True)
        with raise_data_errors(reader):
            outputs = self._platform.predict(self._model, data, [self._progress(reader)])
        return {name: values[: reader.count] for name, values in outputs.items()}

    def means(self, reader: SampleReader) -> Dict[str, float]:
        """Return the means of the objective's terms over all samples."""
        data = evaluation_dataset(reader, batch_size=self._batch_size)
        with raise_data_errors(reader):
            return self._platform.evaluate(self._model, data, [self._progress(reader)])

    def _progress(self, reader: SampleReader) -> EvaluationProgress:
        batches = -(-reader.count // self._batch_size)
        return EvaluationProgress(round(reader.count * sequences_per_pack(reader)), batches, self._interrupted)


class EvaluationProgress(keras.callbacks.Callback):
    """Occasionally logs the progress and the time left.

    Raises:
        InterruptedEvaluation: after an execution, if ``interrupted`` returns true.
    """

    def __init__(self, samples: int, batches: int, interrupted: Callable[[], bool]) -> None:
        super().__init__()
        self._samples = samples
        self._batches = batches
        self._interrupted = interrupted
        self._started = self._logged = time.perf_counter()

    def on_predict_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._interrupted():
            raise InterruptedEvaluation
        now = time.perf_counter()
        if now - self._logged < SECONDS_BETWEEN_LINES:
            return
        self._logged = now
        share = min((batch + 1) / self._batches, 1.0)
        left = (now - self._started) / share * (1 - share)
        done = f"{round(share * self._samples):,}/{self._samples:,}"
        logger.info("evaluated %s samples | ETA %s", done, format_duration(left))

    on_test_batch_end = on_predict_batch_end


def evaluation_batch_size(config: TrainingConfig, platform: Platform) -> int:
    """Return the number of samples to predict at once: the config's, unless the machine requires another one."""
    configured = config.evaluation_batch_size
    if platform.batch_size is None:
        return configured or max(EVALUATION_BATCH_SIZE, config.global_batch.micro_batch_size)
    if configured not in (None, platform.batch_size):
        logger.warning(
            "evaluation_batch_size %d has no effect: IPUs predict micro batches of %d", configured, platform.batch_size
        )
    return platform.batch_size


# After training


def evaluate(session: Session, built: BuiltModel) -> Dict[str, float]:
    """Run validation and test, if the task has them, and write ``scores.json``.

    Returns:
        The scores by name; empty in processes other than the chief.
    """
    batch_size = evaluation_batch_size(session.config, session.platform)
    scores = session.task.evaluate(Predictor(built.model, batch_size, session.platform), session.run.path)
    if not session.processes.is_chief:
        return {}
    if scores:
        session.run.write("scores.json", scores)
        for listener in session.listeners:
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
    """Return the step of the first best evaluation; None if there is none.

    Example:
        >>> find_best_step([Record(10, 0.5), Record(20, 0.7), Record(30, 0.7)], "f1")
        20
    """
    sign = -1 if is_loss(metric) else 1
    finite = [record for record in records if math.isfinite(record.score)]
    return max(finite, key=lambda record: sign * record.score).step if finite else None


class EvaluateWhileTraining(UpdateCounter):
    """Evaluates the model according to the config's ``evaluation``, keeps the best checkpoint, and stops early.

    All of this follows from the evaluations in metrics.jsonl, so a resumed run decides as an uninterrupted one does.
    The chief of several processes evaluates and broadcasts the scores.

    Args:
        saver, checkpoints: save the state of the best evaluation.
        reporting: leaves the time of evaluations out of the throughput.
    """

    def __init__(
        self,
        session: Session,
        data: TrainingData,
        model: keras.Model,
        saver: Saver,
        checkpoints: Checkpoints,
        reporting: Reporting,
    ) -> None:
        super().__init__(saver.position.step)
        config, platform = session.config, session.platform
        every = config.evaluation.every
        assert every is not None
        self._session, self._plan = session, data.plan
        self._saver, self._checkpoints, self._reporting = saver, checkpoints, reporting
        self._metric = config.evaluation.metric or session.task.metrics(config)[0]
        self._rows_between = data.reader.count if every == "epoch" else every * config.samples_per_update
        self._predict = Predictor(model, evaluation_batch_size(config, platform), platform, self._interrupted)
        records = session.processes.decide(lambda: session.run.evaluations(self._metric))
        self._records = [Record(*record) for record in records]
        saver.writer.best = find_best_step(self._records, self._metric)  # a rewind may have discarded a better one
        if saver.writer.best is not None:
            saver.keep_as_best(saver.writer.best)

    def catch_up(self) -> bool:
        """Make up for an evaluation that an interruption prevented, and return whether training has ended."""
        # Other platforms evaluate at the end of the execution in which an evaluation is due.
        is_exact = self._session.platform.shortens_executions
        if self._is_due(1 if is_exact else self._plan.updates_per_execution):
            return self._evaluate()
        return self._patience_is_over()

    def next_step(self, step: int) -> int:
        """Return the number of updates after which the next evaluation is due, if ``step`` updates are done."""
        rows = self._session.config.samples_per_update
        intervals = step * rows // self._rows_between + 1
        return -(-intervals * self._rows_between // rows)

    def on_execution_end(self, updates: int, metrics: Dict[str, float]) -> None:
        if self.model.stop_training or not self._is_due(updates):  # a signal may stop it within a logging period
            return
        started = time.perf_counter()
        if self._evaluate():
            self.model.stop_training = True
        self._reporting.exclude_time(time.perf_counter() - started)

    def _is_due(self, updates: int) -> bool:
        """Return whether an evaluation was due in the last ``updates`` updates and was not made, or training ends."""
        last = self._records[-1].step if self._records else 0
        since = max(last, self.step - updates)
        return self.next_step(since) <= self.step or last < self.step == self._plan.updates

    def _patience_is_over(self) -> bool:
        patience, best = self._session.config.evaluation.patience, find_best_step(self._records, self._metric) or 0
        return patience is not None and sum(record.step > best for record in self._records) >= patience

    def _evaluate(self) -> bool:
        """Evaluate the present state, save it if it is the best one, and return whether training ends.

        All processes call this at the same step.
        """
        session = self._session
        local = self._scores() if session.platform.all_processes_predict else None
        scores = session.processes.decide(lambda: self._scores() if local is None else local)
        if scores is None:
            return True
        self._records.append(Record(self.step, scores[self._metric]))
        is_best = find_best_step(self._records, self._metric) == self.step
        samples = round(self.step * session.config.samples_per_update * self._plan.packing_factor)
        evaluation = Evaluation(self.step, self._plan.updates, samples, scores, is_best)
        for listener in session.listeners:
            listener.evaluated(evaluation)
        if is_best:
            self._saver.keep_as_best(self.step)
            self._checkpoints.save_unsaved()
        ends = self._patience_is_over()
        if ends:
            logger.info("%s has not become better in %d evaluations", self._metric, session.config.evaluation.patience)
        return ends

    def _scores(self) -> Optional[Dict[str, float]]:
        """Return the scores of the present state; None if the run was asked to stop meanwhile."""
        try:
            return self._session.task.evaluate(self._predict, None)
        except InterruptedEvaluation:
            return None

    def _interrupted(self) -> bool:
        # If all processes predict together, none may stop early.
        return self._session.stop.signal is not None and not self._session.platform.all_processes_predict
