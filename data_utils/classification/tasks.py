"""What a benchmark task is, as data: files, columns, labels, metrics, submissions.

The tasks themselves stand in ``glue.py`` and ``clue.py``, one entry each; reading, scoring and writing follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, FrozenSet, Mapping, Optional, Tuple

# One line of a data set by field name: texts from TSV, any JSON values from JSON lines.
Row = Mapping[str, Any]

# Of a file's path: which of its rows belong to the split.
Keep = Callable[[Path], Callable[[Row], bool]]

GLUE, CLUE = "glue", "clue"


class FieldError(ValueError):
    """A field of a row that cannot be used; the reader adds file and line.

    Attributes:
        field: its name.
        reason: what is wrong, such as "is missing".
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}")
        self.field = field
        self.reason = reason


# Of a row: its one or two texts.
Texts = Callable[[Row], Tuple[str, ...]]


@dataclass(frozen=True)
class Label:
    """A class: as the files and submissions write it, and as people and the ``datasets`` library call it."""

    value: str
    name: str


@dataclass(frozen=True)
class SourceFile:
    """A file that may hold a split.

    Attributes:
        name: inside the task's folder.
        header: the columns, where the file does not begin with them.
        keep: chooses the rows, where the file holds those of another split as well.
    """

    name: str
    header: Optional[Tuple[str, ...]] = None
    keep: Optional[Keep] = None


@dataclass(frozen=True)
class Split:
    """Training, validation or test data.

    Attributes:
        files: where it may be; the first that exists is taken.
        hub: name in the ``datasets`` library; None where it is not there.
        title: what tells several splits of one kind apart, such as "mismatched"; else empty.
        submission: name of the file of predictions; test data only.
        optional: whether the task does without where the file is not there.
    """

    files: Tuple[SourceFile, ...]
    hub: Optional[str]
    title: str = ""
    submission: str = ""
    optional: bool = False


@dataclass(frozen=True)
class BenchmarkTask:
    """One task of a benchmark.

    Attributes:
        name: as ``glue_task`` gives it.
        benchmark: GLUE (tab-separated files) or CLUE (JSON lines).
        folders: names that the benchmark's archives give the task's folder.
        texts: of a row, its one or two texts.
        is_pair: whether a sample has two texts.
        labels: the classes in the order of the model's outputs; empty for a regression.
        label_field, id_field: names of those fields.
        metrics: names from ``metrics.METRICS``, the first being the one that is reported where only one is.
        train, validation, test: the splits.
        hub: data set and configuration in the ``datasets`` library.
        hub_fields: fields that are called otherwise there: this file format's name → theirs.
        undecided: label values that say that people did not agree; such rows are left out of training and validation.
        broken_lines: whether the benchmark's own files have lines that lack fields, to be left out.
        score_range: lowest and highest score of a regression.
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

    @property
    def classes(self) -> int:
        """Outputs of the model; 1 for a regression."""
        return len(self.labels) or 1

    @property
    def is_regression(self) -> bool:
        """Whether a score is predicted in place of a class."""
        return not self.labels


def plain(*fields: str) -> Texts:
    """Texts that stand in fields of their own."""

    def texts(row: Row) -> Tuple[str, ...]:
        return tuple(text_of(row, name) for name in fields)

    return texts


def text_of(row: Row, name: str) -> str:
    """The text in a field.

    Raises:
        FieldError: it is missing or no text.
    """
    value = row.get(name)
    if isinstance(value, str):
        return value
    raise FieldError(name, "is missing" if value is None else f"is {short(value)}, not a text")


def short(value: Any) -> str:
    """A value for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"
