"""Makes a task from a user's own files, as the config's section ``classification_data`` describes them.

N rows · C labels.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Optional, Sequence, Tuple, Union

import numpy as np

from data_utils.classification.benchmarks import classes_named
from data_utils.classification.tasks import (
    USER,
    BenchmarkTask,
    ChooseRows,
    EmptyFieldError,
    SourceFile,
    Split,
    text_field,
)
from utilities.tables import Row

METRICS_OF_TWO, METRICS_OF_MORE = ("accuracy", "f1", "matthews"), ("accuracy", "macro_f1", "matthews")
METRICS_OF_NUMBERS = ("pearson", "spearman")
METRICS_OF_SETS = ("micro_f1", "macro_f1")


def user_task(
    train_file: Optional[str],
    validation_file: Optional[str],
    test_file: Optional[str],
    validation_fraction: float,
    validation_seed: int,
    text: Sequence[str],
    label: Union[str, Sequence[str]],
    classes: Optional[Sequence[str]],
    regression: bool,
    label_separator: Optional[str] = None,
) -> BenchmarkTask:
    """Return the task of a user's own files; the arguments are the fields of ``classification_data``."""
    is_split = validation_file is None and validation_fraction > 0
    choose = partial(held_out, validation_fraction, validation_seed)
    part, rest = (partial(choose, selected) if is_split else None for selected in (True, False))
    metrics: Tuple[str, ...] = METRICS_OF_TWO if len(classes or ()) == 2 else METRICS_OF_MORE
    if label_separator is not None:
        metrics = METRICS_OF_SETS
    predictions = f"predictions{Path(test_file).suffix}" if test_file else ""
    return BenchmarkTask(
        name=Path(train_file or validation_file or test_file or USER).stem,
        benchmark=USER,
        folders=(),
        texts=partial(filled, text),
        is_pair=len(text) == 2,
        metrics=METRICS_OF_NUMBERS if regression else metrics,
        hub=("", ""),
        train=_split(train_file, rest),
        validation=(_split(validation_file or train_file, part),),
        test=(_split(test_file, submission=predictions),),
        labels=() if regression else classes_named(*(classes or ())),
        label_field=label if isinstance(label, str) else label[0],
        label_columns=not isinstance(label, str),
        id_field="id",
        score_range=(-math.inf, math.inf),
        separator=label_separator,
    )


def _split(file: Optional[str], rows: Optional[ChooseRows] = None, submission: str = "") -> Split:
    return Split((SourceFile(file or ""),), None, submission=submission, rows=rows)


def filled(columns: Sequence[str], row: Row) -> Tuple[str, ...]:
    """Return the texts in these columns; raise ``EmptyFieldError`` for an empty one."""
    for column in columns:
        if row.get(column) is None:
            raise EmptyFieldError(column, "is missing")
        if not text_field(row, column).strip():
            raise EmptyFieldError(column, "is empty")
    return tuple(row[column] for column in columns)


def held_out(fraction: float, seed: int, selected: bool, labels: np.ndarray) -> np.ndarray:
    """Return which rows are held out of training, or the others, by their labels.

    The same fraction of each class is held out, rounded down, so that each has rows to train on. Scores have no
    classes; of several labels, the rarest is the class of a row.
    """
    order = np.random.RandomState(seed).permutation(len(labels))
    classes = labels if np.issubdtype(labels.dtype, np.integer) else np.zeros(len(labels), np.int32)
    if labels.ndim == 2:
        counts = np.where(labels, labels.sum(axis=0), len(labels) + 1)
        classes = np.where(labels.any(axis=1), counts.argmin(axis=1), labels.shape[1])
    chosen = np.full(len(labels), not selected)
    for number in np.unique(classes):
        rows = order[classes[order] == number]
        chosen[rows[: int(len(rows) * fraction)]] = selected
    return chosen
