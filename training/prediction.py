"""A trained model over every sample of a data set."""

from __future__ import annotations

import logging
import time
from typing import Any, Dict, Optional

import numpy as np

from data_utils.records.pipeline import SampleReader, evaluation_dataset, raise_data_errors
from execution.interface import Platform
from keras_extensions.backend import keras
from keras_extensions.callbacks.progress import format_duration
from training.task import Predict

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 10.0


class EvaluationProgress(keras.callbacks.Callback):
    """A log line now and then, with the time left.

    Args:
        samples: in all.
        batch_size: samples of a batch.
    """

    def __init__(self, samples: int, batch_size: int):
        super().__init__()
        self._samples = samples
        self._batch_size = batch_size
        self._started = self._told = time.perf_counter()

    def on_predict_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Keras: a batch, or several in one execution, ended."""
        now = time.perf_counter()
        if now - self._told < SECONDS_BETWEEN_LINES:
            return
        self._told = now
        done = min((batch + 1) * self._batch_size, self._samples)
        left = (now - self._started) / done * (self._samples - done)
        logger.info("evaluated %s/%s samples | ETA %s", f"{done:,}", f"{self._samples:,}", format_duration(left))


def predictor(model: keras.Model, batch_size: int, platform: Platform) -> Predict:
    """A function that runs ``model`` over all samples of a reader.

    Args:
        model: gives a dict of outputs, each with one row a sample.
        batch_size: samples at a time; the last batch is filled up, and what filled it left out of the result.
        platform: where it runs.
    """

    def predict(reader: SampleReader) -> Dict[str, np.ndarray]:
        data = evaluation_dataset(reader, batch_size=batch_size, pad_last=True)
        with raise_data_errors(reader):
            outputs = platform.predict(model, data, [EvaluationProgress(reader.count, batch_size)])
        return {name: values[: reader.count] for name, values in outputs.items()}

    return predict
