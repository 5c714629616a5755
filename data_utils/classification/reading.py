"""A split of a benchmark task as texts, labels and ids.

N samples.
"""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from data_utils.classification.files import REPAIR, Line, find_file, find_folder, read_lines
from data_utils.classification.hub import hub_lines
from data_utils.classification.tasks import BenchmarkTask, FieldError, Row, Split, short
from utilities.errors import UserError

logger = logging.getLogger(__name__)


class Examples(NamedTuple):
    """Samples of one split.

    Attributes:
        texts: for each sample its one or two texts.
        labels: ``(N,)``, int32 classes or float32 scores; None for test data.
        ids: as the benchmark numbers the samples in submissions.
        origin: file or data set they were read from.
    """

    texts: List[Tuple[str, ...]]
    labels: Optional[np.ndarray]
    ids: List[Any]
    origin: str


def read_split(
    task: BenchmarkTask, split: Split, dataset_dir: Optional[Path], with_labels: bool = True
) -> Optional[Examples]:
    """The samples of a split.

    Args:
        task: the benchmark task.
        split: one of its splits.
        dataset_dir: folder of the task or of its benchmark; None for the ``datasets`` library.
        with_labels: False for test data, whose labels are secret or left alone.

    Returns:
        The samples; None where the split is optional and absent.

    Raises:
        UserError: there is no data, or a row of it cannot be used; names file, line, field and fix.
    """
    if dataset_dir is None:
        if split.hub is None:
            return None
        origin, lines = "/".join((*task.hub, split.hub)), hub_lines(task, split)
    else:
        found = find_file(find_folder(dataset_dir, task), task, split)
        if found is None:
            return None
        origin, lines = str(found.path), read_lines(found, task)
        if found.source.keep is not None:
            lines = kept(lines, found.source.keep(found.path))
    return collected(task, lines, origin, with_labels)


def kept(lines: Iterator[Line], keep: Any) -> Iterator[Line]:
    """The lines whose rows belong to the split."""
    return (line for line in lines if line.row is None or keep(line.row))


def collected(task: BenchmarkTask, lines: Iterator[Line], origin: str, with_labels: bool) -> Examples:
    """Texts, labels and ids of all lines; lines that the benchmark says to leave out are counted and told."""
    texts: List[Tuple[str, ...]] = []
    labels: List[float] = []
    ids: List[Any] = []
    left_out: Dict[str, List[int]] = {}
    classes = {label.value: number for number, label in enumerate(task.labels)}
    for number, row in lines:
        if row is None:
            left_out.setdefault("that lack columns", []).append(number)
            continue
        try:
            if with_labels and label_value(row, task) in task.undecided:
                left_out.setdefault("without an agreed label", []).append(number)
                continue
            texts.append(task.texts(row))
            if with_labels:
                labels.append(label_of(row, task, classes))
            ids.append(id_of(row, task, len(ids)))
        except FieldError as problem:
            raise UserError(f"{origin}: line {number}: {problem.field} {problem.reason}; {REPAIR}") from None
    for kind, numbers in left_out.items():
        logger.warning("%s: %s lines %s are left out (line %s first)", origin, f"{len(numbers):,}", kind, numbers[0])
    if not texts:
        raise UserError(f"{origin}: holds no samples; copy the benchmark's own file again")
    dtype = np.float32 if task.is_regression else np.int32
    return Examples(texts, np.array(labels, dtype) if with_labels else None, ids, origin)


def label_value(row: Row, task: BenchmarkTask) -> str:
    """The label as text: JSON files write numbers, texts and truth values.

    Raises:
        FieldError: there is none.
    """
    value = row.get(task.label_field)
    if value is None:
        raise FieldError(task.label_field, "is missing")
    return value.strip() if isinstance(value, str) else json.dumps(value)


def label_of(row: Row, task: BenchmarkTask, classes: Dict[str, int]) -> float:
    """The number of the class, or the score.

    Raises:
        FieldError: it is not one of the task's.
    """
    value = label_value(row, task)
    if not task.is_regression:
        if value not in classes:
            known = ", ".join(list(classes)[:8]) + (", …" if len(classes) > 8 else "")
            raise FieldError(task.label_field, f"is {short(value)}, not one of {known}")
        return classes[value]
    try:
        score = float(value)
    except ValueError:
        score = math.nan
    low, high = task.score_range
    if not low <= score <= high:
        raise FieldError(task.label_field, f"is {short(value)}, not a number from {low:g} to {high:g}")
    return score


def id_of(row: Row, task: BenchmarkTask, position: int) -> Any:
    """The sample's number in submissions: the file's own, else its position."""
    value = row.get(task.id_field, position)
    return int(value) if isinstance(value, str) and value.isdecimal() else value
