"""Evaluation of a trained model, and prediction over all samples of a data set."""

from __future__ import annotations

import logging
import time
from typing import Any, Dict, Optional

import numpy as np

from data_utils.records.pipeline import SampleReader, evaluation_dataset, raise_data_errors
from execution.interface import Platform
from keras_extensions.backend import keras
from keras_extensions.callbacks.progress import format_duration
from training.session import Session
from training.task import BuiltModel, Predict
from utilities.config.schema import TrainingConfig

logger = logging.getLogger(__name__)

EVALUATION_BATCH_SIZE = 32
SECONDS_BETWEEN_LINES = 10.0


def evaluate(session: Session, built: BuiltModel) -> Dict[str, float]:
    """Run validation and test, if the task has them, and write ``scores.json``.

    Returns:
        The scores by name; empty in processes other than the chief.
    """
    batch_size = evaluation_batch_size(session.config, session.platform)
    scores = session.task.evaluate(predictor(built.model, batch_size, session.platform), session.run.path)
    if not session.processes.is_chief:
        return {}
    if scores:
        session.run.write("scores.json", scores)
        for listener in session.listeners:
            listener.scored(scores)
        for name, score in scores.items():
            logger.info("%s: %.4f", name, score)
    return scores


def evaluation_batch_size(config: TrainingConfig, platform: Platform) -> int:
    """Return the number of samples to predict at once: the config's, unless the machine requires another one."""
    configured = config.evaluation_batch_size
    if platform.batch_size is None:
        return configured or max(EVALUATION_BATCH_SIZE, config.global_batch.micro_batch_size)
    if configured not in (None, platform.batch_size):
        logger.warning(
            "evaluation_batch_size %d is left out: IPUs predict micro batches of %d", configured, platform.batch_size
        )
    return platform.batch_size


def predictor(model: keras.Model, batch_size: int, platform: Platform) -> Predict:
    """Return a function that runs ``model`` over all samples of a reader.

    Args:
        model: the model, which returns a dict of outputs with one row per sample.
        batch_size: samples at once; the last batch is padded, and its padding is removed from the result.
    """

    def predict(reader: SampleReader) -> Dict[str, np.ndarray]:
        data = evaluation_dataset(reader, batch_size=batch_size, pad_last=True)
        with raise_data_errors(reader):
            outputs = platform.predict(model, data, [EvaluationProgress(reader.count, batch_size)])
        return {name: values[: reader.count] for name, values in outputs.items()}

    return predict


class EvaluationProgress(keras.callbacks.Callback):
    """Occasionally logs the progress and the time left."""

    def __init__(self, samples: int, batch_size: int):
        super().__init__()
        self._samples = samples
        self._batch_size = batch_size
        self._started = self._logged = time.perf_counter()

    def on_predict_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        now = time.perf_counter()
        if now - self._logged < SECONDS_BETWEEN_LINES:
            return
        self._logged = now
        done = min((batch + 1) * self._batch_size, self._samples)
        left = (now - self._started) / done * (self._samples - done)
        logger.info("evaluated %s/%s samples | ETA %s", f"{done:,}", f"{self._samples:,}", format_duration(left))
