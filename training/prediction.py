"""Predictions of a model over a whole data set, with their progress in the log."""

from __future__ import annotations

import logging
import time
from typing import Any, Callable, Dict, Optional

import numpy as np

from data_utils.records.packs import sequences_per_pack
from data_utils.records.pipeline import SampleReader, evaluation_dataset, raise_data_errors
from execution.interface import Platform
from keras_extensions.backend import keras
from keras_extensions.listeners.progress import format_duration

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
        InterruptedEvaluation: after a batch, if ``interrupted`` returns true.
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


def evaluation_batch_size(configured: Optional[int], micro_batch_size: int, platform: Platform) -> int:
    """Return the number of samples to predict at once: the configured one, unless the machine requires another."""
    if platform.batch_size is None:
        return configured or max(EVALUATION_BATCH_SIZE, micro_batch_size)
    if configured not in (None, platform.batch_size):
        logger.warning(
            "evaluation_batch_size %d has no effect: IPUs predict micro batches of %d", configured, platform.batch_size
        )
    return platform.batch_size
