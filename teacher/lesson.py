"""What a classifier learns from a teacher: its outputs for all texts, those without a label included.

N samples · C classes
"""

from __future__ import annotations

import logging
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from data_utils.classification.reading import Examples
from data_utils.classification.scoring import METRICS, decode_predictions
from data_utils.classification.tasks import BenchmarkTask
from data_utils.records.features import COMPUTED, LABEL, Feature
from execution.interface import Objective
from keras_extensions.backend import free_models
from model.losses import LABELLED, LabelObjective
from settings.schema import TrainingConfig
from teacher.identity import unlabelled_texts
from teacher.losses import TEACHER_LOGITS, DistillationObjective
from teacher.outputs import teacher_outputs

logger = logging.getLogger(__name__)


class TeacherLesson:
    """What :class:`tasks.classification.Classification` learns of samples besides their labels."""

    def __init__(self, config: TrainingConfig, benchmark: BenchmarkTask) -> None:
        self._config, self._own, self._benchmark = config, config.distillation, benchmark

    def features(self, classes: int) -> Sequence[Feature]:
        """Return the further features of a sample."""
        return Feature(TEACHER_LOGITS, classes, COMPUTED), Feature(LABELLED, 1, LABEL, 2)

    def samples(self, examples: Examples) -> Tuple[List[Tuple[str, ...]], Dict[str, np.ndarray], Dict[str, Any]]:
        """Return all texts, also those that the teacher labels, their targets, and what the report says of them."""
        own, labels = self._own, examples.labels
        assert labels is not None
        texts = examples.texts + unlabelled_texts(own, self._benchmark)
        known, count = len(labels), len(texts)
        taught = teacher_outputs(self._config, self._benchmark, texts)
        free_models()
        predictions = decode_predictions(self._benchmark, taught.logits[:known])
        metric = self._benchmark.metrics[0]
        score = METRICS[metric](predictions, labels)
        settings = f"weight {own.weight:g}, temperature {own.temperature:g}"
        measured = f"{metric} {score:.4f} on the {known:,} labels to train on"
        others = f"; {count - known:,} texts have no label" if count > known else ""
        logger.info("the teacher is %s (%s): %s%s", taught.origin, settings, measured, others)
        targets = {
            "labels": np.concatenate([labels, np.zeros((count - known, *labels.shape[1:]), labels.dtype)]),
            TEACHER_LOGITS: taught.logits,  # (N, C)
            LABELLED: np.arange(count) < known,
        }
        description = {"checkpoint": taught.origin, metric: score, "file": str(taught.path), "sha256": taught.identity}
        return texts, targets, {"records": count, "records_without_label": count - known, "teacher": description}

    def objective(self, labels: LabelObjective) -> Objective:
        """Return the losses, given those of the labels."""
        return DistillationObjective(labels, self._own.weight, self._own.temperature)
