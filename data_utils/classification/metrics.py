"""The metrics of GLUE and CLUE, from their formulas. N samples.

Where a metric is not defined (no variance, no positive sample) it is 0, as no better than guessing.
"""

from __future__ import annotations

from typing import Callable, Dict

import numpy as np

Metric = Callable[[np.ndarray, np.ndarray], float]


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Share of right predictions, ``(N,)`` classes each."""
    return float(np.mean(predictions == labels))


def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """F1 of class 1: 2 TP / (2 TP + FP + FN)."""
    right = np.sum((predictions == 1) & (labels == 1))
    total = np.sum(predictions == 1) + np.sum(labels == 1)  # 2 TP + FP + FN
    return float(2 * right / total) if total else 0.0


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Matthews' correlation coefficient of two classes: the correlation of prediction and label, each 0 or 1."""
    return pearson(predictions == 1, labels == 1)


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Pearson's correlation coefficient of ``(N,)`` numbers each."""
    x = np.asarray(predictions, np.float64)
    y = np.asarray(labels, np.float64)
    x, y = x - x.mean(), y - y.mean()
    spread = np.sqrt(np.sum(x * x)) * np.sqrt(np.sum(y * y))
    return float(np.clip(np.sum(x * y) / spread, -1, 1)) if spread > 0 else 0.0


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Spearman's: Pearson's of the ranks, equal values sharing the mean of theirs."""
    return pearson(ranks(predictions), ranks(labels))


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1 of ``(N,)`` numbers, equal ones with the mean of their ranks.

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
