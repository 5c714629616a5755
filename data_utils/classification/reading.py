"""Reads a split of a benchmark task as texts, labels and ids, from its files or the ``datasets`` library.

GLUE's files are tab-separated and have no quoting: a quotation mark is a character like any other, and only a line feed
ends a line. CLUE's are JSON lines. N samples.
"""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from data_utils.classification.tasks import GLUE, BenchmarkTask, FieldError, Row, Split, short
from data_utils.hub import hub_split
from utilities.errors import UserError

logger = logging.getLogger(__name__)

REPAIR = "correct it there, or copy the benchmark's own file again"


class Examples(NamedTuple):
    """The samples of one split.

    Attributes:
        texts: the one or two texts of each sample.
        labels: ``(N,)``, int32 classes or float32 scores; None for test data.
        ids: as the benchmark numbers the samples in submissions.
        origin: the file or data set that they were read from.
    """

    texts: List[Tuple[str, ...]]
    labels: Optional[np.ndarray]
    ids: List[Any]
    origin: str


def read_split(
    task: BenchmarkTask, split: Split, dataset_dir: Optional[Path], with_labels: bool = True
) -> Optional[Examples]:
    """Return the samples of a split.

    Args:
        dataset_dir: folder of the task or of its benchmark; None for the ``datasets`` library.
        with_labels: False for test data, whose labels are secret or ignored.

    Returns:
        The samples; None where the split is optional and absent.

    Raises:
        UserError: there is no data, or a row cannot be used; names file, line, field and fix.
    """
    if dataset_dir is None:
        if split.hub is None:
            return None
        data = hub_split(*task.hub, split.hub, f"a folder that holds {task.folders[0]}")
        return _collect(task, _hub_lines(task, data), "/".join((*task.hub, split.hub)), with_labels)
    folder = _find_folder(dataset_dir, task)
    source = next((source for source in split.files if (folder / source.name).is_file()), None)
    if source is None:
        if split.optional:
            return None
        wanted = " or ".join(source.name for source in split.files)
        raise UserError(f"dataset_dir: {folder} has no {wanted}, which {task.name} needs; copy it there")
    path = folder / source.name
    if task.benchmark == GLUE:
        lines = _tab_separated(path, source.header, task.broken_lines)
    else:
        lines = _json_lines(path)
    if source.keep is not None:
        keep = source.keep(path)
        lines = (line for line in lines if line.row is None or keep(line.row))
    return _collect(task, lines, str(path), with_labels)


class Line(NamedTuple):
    """A row and its line number, counted from 1; ``row`` is None for a line that lacks fields."""

    number: int
    row: Optional[Row]


def _collect(task: BenchmarkTask, lines: Iterable[Line], origin: str, with_labels: bool) -> Examples:
    """Return texts, labels and ids of all lines; log how many lines the benchmark says to leave out."""
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
            if with_labels and _label_text(row, task) in task.undecided:
                left_out.setdefault("without an agreed label", []).append(number)
                continue
            texts.append(task.texts(row))
            if with_labels:
                labels.append(_label(row, task, classes))
            identity = row.get(task.id_field, len(ids))
            is_number = isinstance(identity, str) and identity.isdecimal()
            ids.append(int(identity) if is_number else identity)
        except FieldError as problem:
            raise UserError(f"{origin}: line {number}: {problem.field} {problem.reason}; {REPAIR}") from None
    for kind, numbers in left_out.items():
        logger.warning("%s: %s lines %s are left out (line %s first)", origin, f"{len(numbers):,}", kind, numbers[0])
    if not texts:
        raise UserError(f"{origin}: holds no samples; copy the benchmark's own file again")
    dtype = np.float32 if task.is_regression else np.int32
    return Examples(texts, np.array(labels, dtype) if with_labels else None, ids, origin)


def _label_text(row: Row, task: BenchmarkTask) -> str:
    """Return the label as text: JSON files have numbers, texts and truth values."""
    value = row.get(task.label_field)
    if value is None:
        raise FieldError(task.label_field, "is missing")
    return value.strip() if isinstance(value, str) else json.dumps(value)


def _label(row: Row, task: BenchmarkTask, classes: Dict[str, int]) -> float:
    """Return the number of the class, or the score."""
    value = _label_text(row, task)
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


def _find_folder(dataset_dir: Path, task: BenchmarkTask) -> Path:
    """Return the task's folder: ``dataset_dir``, or the one that the benchmark's archive makes inside it."""
    names = [file.name for split in (task.train, *task.validation, *task.test) for file in split.files]
    for folder in (*(dataset_dir / name for name in task.folders), dataset_dir):
        if any((folder / name).is_file() for name in names):
            return folder
    if not dataset_dir.is_dir():
        raise UserError(f"dataset_dir: there is no folder {dataset_dir}; set it to one that holds {task.folders[0]}")
    raise UserError(
        f"dataset_dir: neither {dataset_dir} nor {task.folders[0]} in it has the files of {task.name}"
        f" ({', '.join(dict.fromkeys(names))}); set it to the folder where {task.benchmark.upper()} was unpacked"
    )


def _text_lines(path: Path) -> List[Tuple[int, str]]:
    """Return the lines of a file that are not empty, with their numbers from 1."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); copy it again") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}: line {number}: is not UTF-8 ({error.reason}); {REPAIR}") from error
    lines = ((number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), start=1))
    return [(number, line) for number, line in lines if line]


def _tab_separated(path: Path, header: Optional[Tuple[str, ...]], broken_lines: bool) -> Iterator[Line]:
    lines = _text_lines(path)
    if header is None:
        if not lines:
            raise UserError(f"{path}: is empty; copy the benchmark's own file again")
        header = tuple(name.strip() for name in lines[0][1].split("\t"))
        lines = lines[1:]
    for number, line in lines:
        values = line.split("\t")
        if len(values) != len(header):
            if broken_lines and len(values) < len(header):
                yield Line(number, None)
                continue
            columns = f"has {len(values)} columns, not the {len(header)} of {', '.join(header)}"
            raise UserError(f"{path}: line {number}: {columns}; {REPAIR}")
        yield Line(number, dict(zip(header, values)))


def _json_lines(path: Path) -> Iterator[Line]:
    for number, line in _text_lines(path):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: line {number}: is not JSON ({error}); {REPAIR}") from error
        if not isinstance(row, dict):
            raise UserError(f"{path}: line {number}: is {short(row)}, not an object {{…}}; {REPAIR}")
        yield Line(number, row)


def _hub_lines(task: BenchmarkTask, data: Any) -> Iterator[Line]:
    """Yield rows of a ``datasets.Dataset`` with the field names and label values of the benchmark's own files."""
    renamed = {theirs: ours for ours, theirs in {task.id_field: "idx", **task.hub_fields}.items()}
    names = getattr(data.features.get("label"), "names", None)  # of the classes, in the order of the library's numbers
    by_name = {label.name: label.value for label in task.labels}
    for number, row in enumerate(data, start=1):
        ours: Dict[str, Any] = {renamed.get(name, name): value for name, value in row.items()}
        label = ours.get(task.label_field)
        if names and isinstance(label, int) and 0 <= label < len(names):  # test data has -1
            name = names[label]
            ours[task.label_field] = by_name.get(name, name)
        yield Line(number, ours)
