"""Predictions for test data in the form that the benchmarks' leaderboards take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Iterator, Sequence

import numpy as np

from data_utils.classification.tasks import GLUE, BenchmarkTask


def predicted(task: BenchmarkTask, logits: np.ndarray) -> np.ndarray:
    """Classes of the highest logit, or scores, ``(N,)`` from ``(N, classes)``."""
    return logits[:, 0] if task.is_regression else np.argmax(logits, axis=1)


def submission_values(task: BenchmarkTask, predictions: np.ndarray) -> Iterator[str]:
    """Predictions as the benchmark writes them: a class's own value, or a score within the task's range."""
    if not task.is_regression:
        return (task.labels[number].value for number in predictions.tolist())
    return (f"{score:.3f}" for score in np.clip(predictions, *task.score_range).tolist())


def write_submission(path: Path, task: BenchmarkTask, ids: Sequence[Any], predictions: np.ndarray) -> None:
    """Write predictions in the order of the test file.

    GLUE takes tab-separated ``index`` and ``prediction`` with a header, CLUE JSON lines with ``id`` and ``label``.

    Args:
        path: the file; its name is one that the leaderboard knows.
        ids: of the samples.
        predictions: ``(N,)`` classes or scores.
    """
    assert len(ids) == len(predictions)
    values = zip(ids, submission_values(task, predictions))
    if task.benchmark == GLUE:
        lines = ["index\tprediction", *(f"{number}\t{value}" for number, value in values)]
    else:
        lines = [json.dumps({"id": number, "label": value}, ensure_ascii=False) for number, value in values]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
