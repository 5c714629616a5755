"""Scores predictions, and writes them in the formats of the benchmarks' leaderboards.

N samples · C labels; if a sample may have any number of them, predictions and labels are (N, C), 1 for those it has.

A metric that is not defined (no variance, no positive sample) is 0, as for guessing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Sequence

import numpy as np

from data_utils.classification.tasks import CLUE, GLUE, USER, BenchmarkTask
from utilities.table_output import write_table

Metric = Callable[[np.ndarray, np.ndarray], float]


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of right predictions, of ``(N,)`` classes."""
    return float(np.mean(predictions == labels))


def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the F1 of class 1: 2 TP / (2 TP + FP + FN); over all labels together, it is the micro F1."""
    right = np.sum((predictions == 1) & (labels == 1))
    total = np.sum(predictions == 1) + np.sum(labels == 1)  # 2 TP + FP + FN
    return float(2 * right / total) if total else 0.0


def macro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean F1 of the classes that occur in predictions or labels, or of all labels."""
    if labels.ndim == 2:
        return float(np.mean([f1(*column) for column in zip(predictions.T, labels.T)]))
    classes = np.union1d(predictions, labels)
    return float(np.mean([f1(predictions == number, labels == number) for number in classes]))


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return Matthews' correlation coefficient, in Gorodkin's form for any number of classes.

    It is the correlation of prediction and label, as rows of indicators, one for each class.
    """
    classes = np.union1d(predictions, labels)
    return pearson(predictions[:, None] == classes, labels[:, None] == classes)


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return Pearson's correlation coefficient of ``(N,)`` numbers each, or of ``(N, C)`` over all columns."""
    x = np.asarray(predictions, np.float64)
    y = np.asarray(labels, np.float64)
    varies = np.ptp(x, axis=0).any() and np.ptp(y, axis=0).any()  # else their means, which are rounded, seem to differ
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    spread = np.sqrt(np.sum(x * x)) * np.sqrt(np.sum(y * y))
    return float(np.clip(np.sum(x * y) / spread, -1, 1)) if varies and spread > 0 else 0.0


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return Spearman's correlation coefficient: Pearson's of the ranks; ties have the mean of their ranks."""
    from scipy.stats import rankdata  # its import takes half a second, which no other metric needs

    return pearson(rankdata(predictions), rankdata(labels))


METRICS: Dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "micro_f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def decode_predictions(task: BenchmarkTask, logits: np.ndarray) -> np.ndarray:
    """Return for each sample the class with the highest logit, or the score, ``(N,)`` from ``(N, classes)``.

    For any number of labels, return 1 for those with a probability above 0.5, else 0: ``(N, C)``.
    """
    if task.is_multi_label:
        return (logits > 0).astype(np.int32)
    return logits[:, 0] if task.is_regression else np.argmax(logits, axis=1)


def constant_predictions(task: BenchmarkTask, labels: np.ndarray) -> np.ndarray:
    """Return the best guess without the text for each sample, as a baseline, in the form of the labels.

    It is the most frequent class, all labels that more than half of the samples have, or the mean score.
    """
    if task.is_multi_label:
        return np.broadcast_to(labels.mean(axis=0) > 0.5, labels.shape).astype(np.int32)
    return np.full_like(labels, np.mean(labels) if task.is_regression else np.bincount(labels).argmax())


def joined_labels(task: BenchmarkTask, prediction: np.ndarray) -> str:
    """Return the labels of a sample, ``(C,)``, as texts with the task's separator between them."""
    assert task.separator is not None
    return task.separator.join(task.labels[number].value for number in np.flatnonzero(prediction))


def write_submission(path: Path, task: BenchmarkTask, ids: Sequence[Any], predictions: np.ndarray) -> None:
    """Write predictions of :func:`decode_predictions` in the order of the test file; the suffix selects the format.

    GLUE takes tab-separated ``index`` and ``prediction`` with a header, CLUE JSON lines with ``id`` and ``label``. For
    own data these are ``id`` and the name of the label's column, or columns of 0 and 1 if the labels have such.
    """
    assert len(ids) == len(predictions)
    path.parent.mkdir(parents=True, exist_ok=True)
    if task.label_columns:
        names = (task.id_field, *(label.value for label in task.labels))
        write_table(path, (dict(zip(names, (each, *row))) for each, row in zip(ids, predictions.tolist())))
        return
    if task.is_multi_label:
        values: Iterable[Any] = (joined_labels(task, row) for row in predictions)
    elif not task.is_regression:
        values = (task.labels[number].value for number in predictions.tolist())
    elif task.benchmark == USER:
        values = (float(f"{score:.6g}") for score in predictions.tolist())
    else:
        values = (f"{score:.3f}" for score in np.clip(predictions, *task.score_range).tolist())
    columns = {GLUE: ("index", "prediction"), CLUE: ("id", "label"), USER: (task.id_field, task.label_field)}
    write_table(path, (dict(zip(columns[task.benchmark], row)) for row in zip(ids, values)))
