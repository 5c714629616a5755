"""Scores predictions, and writes them as the benchmarks' leaderboards take them. N samples.

A metric that is not defined (no variance, no positive sample) is 0, as for guessing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Sequence

import numpy as np

from data_utils.classification.tasks import GLUE, BenchmarkTask

Metric = Callable[[np.ndarray, np.ndarray], float]


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of right predictions, ``(N,)`` classes each."""
    return float(np.mean(predictions == labels))


def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the F1 of class 1: 2 TP / (2 TP + FP + FN)."""
    right = np.sum((predictions == 1) & (labels == 1))
    total = np.sum(predictions == 1) + np.sum(labels == 1)  # 2 TP + FP + FN
    return float(2 * right / total) if total else 0.0


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return Matthews' correlation coefficient of two classes: that of prediction and label, each 0 or 1."""
    return pearson(predictions == 1, labels == 1)


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return Pearson's correlation coefficient of ``(N,)`` numbers each."""
    x = np.asarray(predictions, np.float64)
    y = np.asarray(labels, np.float64)
    x, y = x - x.mean(), y - y.mean()
    spread = np.sqrt(np.sum(x * x)) * np.sqrt(np.sum(y * y))
    return float(np.clip(np.sum(x * y) / spread, -1, 1)) if spread > 0 else 0.0


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return Spearman's correlation coefficient: Pearson's of the ranks."""
    return pearson(ranks(predictions), ranks(labels))


def ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 1 of ``(N,)`` numbers; equal ones have the mean of their ranks.

    Example:
        >>> ranks(np.array([0.5, 2.0, 0.5, 1.0])).tolist()
        [1.5, 4.0, 1.5, 3.0]
    """
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[group]


METRICS: Dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def predicted(task: BenchmarkTask, logits: np.ndarray) -> np.ndarray:
    """Return classes of the highest logit, or scores, ``(N,)`` from ``(N, classes)``."""
    return logits[:, 0] if task.is_regression else np.argmax(logits, axis=1)


def write_submission(path: Path, task: BenchmarkTask, ids: Sequence[Any], predictions: np.ndarray) -> None:
    """Write predictions, ``(N,)`` classes or scores, in the order of the test file.

    GLUE takes tab-separated ``index`` and ``prediction`` with a header, CLUE JSON lines with ``id`` and ``label``.
    """
    assert len(ids) == len(predictions)
    if task.is_regression:
        written: Iterable[str] = (f"{score:.3f}" for score in np.clip(predictions, *task.score_range).tolist())
    else:
        written = (task.labels[number].value for number in predictions.tolist())
    values = zip(ids, written)
    if task.benchmark == GLUE:
        lines = ["index\tprediction", *(f"{number}\t{value}" for number, value in values)]
    else:
        lines = [json.dumps({"id": number, "label": value}, ensure_ascii=False) for number, value in values]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
