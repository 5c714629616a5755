"""The description of a task as data: files, columns, labels, metrics, submissions.

``benchmarks.py`` has an entry for each benchmark task, and ``user_task.py`` makes a task from a config; reading,
scoring and writing predictions follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, FrozenSet, Mapping, Optional, Tuple

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
        self.reason = reason


class EmptyFieldError(FieldError):
    """A text is empty or missing, so that there is nothing to predict."""


@dataclass(frozen=True)
class Label:
    """A class: its value in files and submissions, and its name for people and in the ``datasets`` library."""

    value: str
    name: str


@dataclass(frozen=True)
class SourceFile:
    """A file that may contain a split.

    Attributes:
        header: the columns, if the file does not begin with them.
        keep: chooses the rows, if the file also contains those of another split.
    """

    name: str
    header: Optional[Tuple[str, ...]] = None
    keep: Optional[Keep] = None


@dataclass(frozen=True)
class Split:
    """Training, validation or test data.

    Attributes:
        files: the first that exists is used.
        hub: name in the ``datasets`` library; None if the library does not have it.
        title: distinguishes several splits of one kind, such as "mismatched"; else empty.
        submission: name of the file of predictions; test data only.
        rows: chooses the rows, if only a part of the user's own file is used.
    """

    files: Tuple[SourceFile, ...]
    hub: Optional[str]
    title: str = ""
    submission: str = ""
    optional: bool = False
    rows: Optional[ChooseRows] = None


@dataclass(frozen=True)
class BenchmarkTask:
    """One task of a benchmark, or that of a user's own data.

    Attributes:
        name: value of ``glue_task``; for own data, the name of the training file.
        benchmark: GLUE (tab-separated files), CLUE (JSON lines) or USER (any of these, or CSV).
        folders: names that the benchmark's archives give the task's folder.
        labels: the classes in the order of the model's outputs; empty for a regression.
        metrics: names from ``scoring.METRICS``; the first is the main one.
        hub: data set and configuration in the ``datasets`` library.
        hub_fields: fields that have another name there: name in the benchmark's own files → name in the library.
        undecided: label values of rows on which annotators did not agree; training and validation leave these out.
        broken_lines: whether the benchmark's own files have lines that lack fields; these are left out.
        section: section of the config that describes the user's own files.
        separator: separates the labels of a row, if it may have any number of them; None if it has one class.
        label_columns: whether each label has a column of 0 and 1, of its name.
    """

    name: str
    benchmark: str
    folders: Tuple[str, ...]
    texts: Texts
    is_pair: bool
    metrics: Tuple[str, ...]
    hub: Tuple[str, str]
    train: Split
    validation: Tuple[Split, ...]
    test: Tuple[Split, ...]
    labels: Tuple[Label, ...] = ()
    label_field: str = "label"
    id_field: str = "index"
    hub_fields: Mapping[str, str] = field(default_factory=dict)
    undecided: FrozenSet[str] = frozenset()
    broken_lines: bool = False
    score_range: Tuple[float, float] = (0.0, 5.0)
    section: str = "classification_data"
    separator: Optional[str] = None
    label_columns: bool = False

    @property
    def classes(self) -> int:
        """Number of outputs of the model; 1 for a regression."""
        return len(self.labels) or 1

    @property
    def is_regression(self) -> bool:
        """Whether the task predicts a score, not a class."""
        return not self.labels

    @property
    def is_multi_label(self) -> bool:
        """Whether a sample has any number of the labels, not exactly one."""
        return self.separator is not None


def plain(*fields: str) -> Texts:
    """Return a function that reads texts from these fields."""

    def texts(row: Row) -> Tuple[str, ...]:
        return tuple(text_field(row, name) for name in fields)

    return texts


def text_field(row: Row, name: str) -> str:
    """Return the text in a field, or raise ``FieldError``."""
    return typed_field(row, name, str, "a text")


def typed_field(row: Row, name: str, kind: type, what: str, within: str = "") -> Any:
    """Return the value of a field, which must be ``what``; ``within`` is the beginning of its name in a message.

    If it is not, or is missing, this raises a ``FieldError``.
    """
    value = row.get(name)
    if type(value) is kind:  # true is no number
        return value
    raise FieldError(within + name, "is missing" if value is None else f"is {short(value)}, not {what}")
