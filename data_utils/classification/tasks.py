"""The description of a task as data: files, columns, labels, metrics, submissions.

``benchmarks.py`` has an entry for each benchmark task, and ``user_task.py`` makes a task from a config; reading,
scoring and writing predictions follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, FrozenSet, Mapping, Optional, Sequence, Tuple

import numpy as np

from utilities.tables import Row, short

# Takes a file's path and returns a function that decides whether a row of it belongs to the split.
Keep = Callable[[Path], Callable[[Row], bool]]

# Returns the one or two texts of a row.
Texts = Callable[[Row], Tuple[str, ...]]

# Returns the rows that belong to a part of a file, ``(N,)`` bool, by their labels ``(N,)`` or ``(N, C)``.
ChooseRows = Callable[[np.ndarray], np.ndarray]

GLUE, CLUE, USER = "glue", "clue", "own data"


class FieldError(ValueError):
    """A field of a row cannot be used, for a reason such as "is missing"; the reader adds file and line."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}")
        self.field = field


class EmptyFieldError(FieldError):
    """A text is empty or missing, so that there is nothing to predict."""


@dataclass(frozen=True)
class Label:
    """A class: its value in files and submissions, and its name for people and in the ``datasets`` library."""

    value: str
    name: str


@dataclass(frozen=True)
class SourceFile:
    name: str
    header: Optional[Tuple[str, ...]] = None  # the columns, if the file does not begin with them
    keep: Optional[Keep] = None  # chooses the rows, if the file also contains those of another split


@dataclass(frozen=True)
class Split:
    files: Tuple[SourceFile, ...]  # the first that exists is used
    hub: Optional[str]  # name in the ``datasets`` library; None if the library does not have it
    title: str = ""  # distinguishes several splits of one kind, such as "mismatched"
    submission: str = ""  # name of the file of predictions, of test data
    optional: bool = False
    rows: Optional[ChooseRows] = None  # chooses the rows, if only a part of the user's own file is used


@dataclass(frozen=True)
class BenchmarkTask:
    """One task of a benchmark, or that of a user's own data."""

    name: str  # value of ``glue_task``; for own data, the name of the training file
    benchmark: str  # GLUE (tab-separated files), CLUE (JSON lines) or USER (any of these, or CSV)
    folders: Tuple[str, ...]  # names that the benchmark's archives give the task's folder
    texts: Texts
    is_pair: bool
    metrics: Tuple[str, ...]  # names from ``scoring.METRICS``; the first is the main one
    hub: Tuple[str, str]  # data set and configuration in the ``datasets`` library
    train: Split
    validation: Tuple[Split, ...]
    test: Tuple[Split, ...]
    labels: Tuple[Label, ...] = ()  # in the order of the model's outputs; empty for a regression
    label_field: str = "label"
    id_field: str = "index"
    hub_fields: Mapping[str, str] = field(default_factory=dict)  # name in the benchmark's files → in the library
    undecided: FrozenSet[str] = frozenset()  # labels of rows without agreement, which are left out except of tests
    broken_lines: bool = False  # whether the benchmark's own files have lines that lack fields; these are left out
    score_range: Tuple[float, float] = (0.0, 5.0)
    section: str = "classification_data"  # of the config, which describes the user's own files
    separator: Optional[str] = None  # of the labels of a row, if it may have any number of them
    label_columns: bool = False  # whether each label has a column of 0 and 1, of its name

    @property
    def classes(self) -> int:
        """Number of outputs of the model; 1 for a regression."""
        return len(self.labels) or 1

    @property
    def is_regression(self) -> bool:
        return not self.labels

    @property
    def is_multi_label(self) -> bool:
        """Whether a sample has any number of the labels, not exactly one."""
        return self.separator is not None


def plain(fields: Sequence[str], row: Row) -> Tuple[str, ...]:
    return tuple(text_field(row, name) for name in fields)


def text_field(row: Row, name: str) -> str:
    return typed_field(row, name, str, "a text")


def typed_field(row: Row, name: str, kind: type, what: str, within: str = "") -> Any:
    """Return the value of a field, which must be ``what`` (or a ``FieldError``, with a name after ``within``)."""
    value = row.get(name)
    if type(value) is kind:  # true is no number
        return value
    raise FieldError(within + name, "is missing" if value is None else f"is {short(value)}, not {what}")
