"""Reads a split of a task as texts, labels and ids, from its files or the ``datasets`` library.

GLUE's files are tab-separated without quoting, CLUE's are JSON lines; the format of users' own follows from their name.
N samples · C labels, of which a sample may have any number.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from data_utils.classification.tasks import GLUE, USER, BenchmarkTask, FieldError, Split
from data_utils.hub_dataset import hub_split
from utilities.errors import UserError
from utilities.tables import (
    FLAGS,
    REPAIR,
    Line,
    Row,
    are_flags,
    json_rows,
    lines_named,
    listed,
    read_table,
    short,
    tab_separated_rows,
    value_as_text,
    values_as_text,
)

logger = logging.getLogger(__name__)

UNDECIDED = "without an agreed label"

LARGEST_SCORE = float(np.finfo(np.float32).max)


class Examples(NamedTuple):
    """The samples of one split.

    The labels are ``(N,)``, int32 classes or float32 scores; ``(N, C)``, int32, 1 for those that a sample has; None for
    test data.
    """

    texts: List[Tuple[str, ...]]
    labels: Optional[np.ndarray]
    ids: List[Any]
    origin: str


def read_split(
    task: BenchmarkTask, split: Split, dataset_dir: Optional[Path], with_labels: bool = True
) -> Optional[Examples]:
    """Return the samples of a split; None if it is optional and absent.

    Args:
        dataset_dir: folder of the task or of its benchmark; None: use the ``datasets`` library.
        with_labels: False for test data, whose labels are secret or ignored.
    """
    if task.benchmark == USER:
        return _user_split(task, split, dataset_dir or Path(), with_labels)
    if dataset_dir is None:
        if split.hub is None:
            return None
        data = hub_split(*task.hub, split.hub, f"a folder with {task.folders[0]}")
        return _collect(task, _hub_lines(task, data), "/".join((*task.hub, split.hub)), with_labels)
    folder = find_folder(dataset_dir, task)
    source = next((source for source in split.files if (folder / source.name).is_file()), None)
    if source is None:
        if split.optional:
            return None
        names = " or ".join(source.name for source in split.files)
        raise UserError(f"dataset_dir: {folder} has no {names}, which {task.name} needs; copy it there")
    path = folder / source.name
    is_glue = task.benchmark == GLUE
    lines = tab_separated_rows(path, source.header, task.broken_lines) if is_glue else json_rows(path)
    if source.keep is not None:
        keep = source.keep(path)
        lines = (line for line in lines if not line.row or keep(line.row))
    return _collect(task, lines, str(path), with_labels)


def read_unlabelled(task: BenchmarkTask, path: Path) -> Examples:
    """Return the texts of a user's table, in the columns of the task's own files; labels are not read."""
    return _collect(task, read_table(path), str(path), with_labels=False)


def check_user_file(path: Path, section: str) -> None:
    """Refuse the path of a user's own file, named in a ``section`` of the config, where there is none."""
    if not path.is_file():
        flags = f"--{section.replace('_', '-')}.train-file, .validation-file, .test-file; dataset_dir is their folder"
        raise UserError(f"{section}: there is no file {path}; correct its path ({flags})")


def _user_split(task: BenchmarkTask, split: Split, folder: Path, with_labels: bool) -> Examples:
    path = folder / split.files[0].name
    check_user_file(path, task.section)
    examples = _collect(task, read_table(path), str(path), with_labels)
    if split.rows is not None:
        unlabelled = np.zeros(len(examples.texts), np.float32)
        examples = _part(task, examples, split.rows(unlabelled if examples.labels is None else examples.labels))
    labels = np.zeros(0) if examples.labels is None else examples.labels
    present = set(np.flatnonzero(labels.any(axis=0)) if task.is_multi_label else labels.tolist())
    absent = [label.name for number, label in enumerate(task.labels) if number not in present]
    if split is task.train and absent:
        column, listed_in = (absent[0], "label") if task.label_columns else (task.label_field, "classes")
        fix = f"add such rows, or take it out of {task.section}.{listed_in}"
        raise UserError(f"{path}: {column}: no row to train on has the class {absent[0]}; {fix}")
    return examples


def _part(task: BenchmarkTask, examples: Examples, chosen: np.ndarray) -> Examples:
    if not chosen.any():
        fix = f"change {task.section}.validation_fraction, or name a validation_file"
        raise UserError(f"{examples.origin}: has too few rows to hold out a part of them for validation; {fix}")
    rows = np.flatnonzero(chosen).tolist()
    texts, ids = ([column[row] for row in rows] for column in (examples.texts, examples.ids))
    labels = None if examples.labels is None else examples.labels[chosen]
    return Examples(texts, labels, ids, examples.origin)


def report_copies(train: Examples, held_out: Examples) -> None:
    """Warn if samples to score have texts that are trained, too."""
    known = set(train.texts)
    count = sum(texts in known for texts in held_out.texts)
    if count:
        what = f"{count:,} of {len(held_out.texts):,} samples to score have the text of a row to train on"
        logger.warning("%s: %s, so that scores may be too high; leave copies out", held_out.origin, what)


def _collect(task: BenchmarkTask, lines: Iterable[Line], origin: str, with_labels: bool) -> Examples:
    """Return texts, labels and ids of all lines; log how many lines are left out, as the benchmark requires."""
    texts: List[Tuple[str, ...]] = []
    labels: List[Union[float, np.ndarray]] = []
    ids: List[Any] = []
    left_out: Dict[str, List[int]] = {}
    broken: Dict[int, str] = {}
    classes = {label.value: number for number, label in enumerate(task.labels)}
    for number, row in lines:
        if task.broken_lines and not row:
            left_out.setdefault("that lack columns", []).append(number)
            continue
        try:
            if with_labels and task.undecided and _label_text(row, task) in task.undecided:
                left_out.setdefault(UNDECIDED, []).append(number)
                continue
            texts.append(task.texts(row))
            if with_labels:
                labels.append(_label_set(row, task, classes) if task.is_multi_label else _label(row, task, classes))
            identity = row.get(task.id_field, len(ids))
            is_number = task.benchmark != USER and isinstance(identity, str) and identity.isdecimal()
            ids.append(int(identity) if is_number else identity)
        except FieldError as problem:
            columns = f" (the columns are {listed(row)})" if problem.field.split(".")[0] not in row else ""
            broken[number] = f"{problem}{columns}"
    if broken:
        (first, reason), *others = broken.items()
        flags = f"--{task.section.replace('_', '-')}.text, .label"
        fix = f"correct it there, or set {task.section} ({flags}) to what the file has"
        repair = fix if task.benchmark == USER else REPAIR
        more = f", and {lines_named([other for other, _ in others])} cannot be used either" if others else ""
        raise UserError(f"{origin}: line {first}: {reason}{more}; {repair}")
    for kind, numbers in left_out.items():
        level = logging.INFO if kind == UNDECIDED else logging.WARNING  # the former is a property of the benchmark
        logger.log(level, "%s: %s lines %s are left out (line %s first)", origin, f"{len(numbers):,}", kind, numbers[0])
    if not texts:
        raise UserError(f"{origin}: contains no samples; add rows, or name another file")
    dtype = np.float32 if task.is_regression else np.int32
    return Examples(texts, np.array(labels, dtype) if with_labels else None, ids, origin)


def _label_text(row: Row, task: BenchmarkTask) -> str:
    value = row.get(task.label_field)
    if value is None or isinstance(value, (list, dict)) or value != value:  # NaN, which Python writes as JSON
        raise FieldError(task.label_field, "is missing" if value is None else f"is {short(value)}, not one value")
    return value_as_text(value)


def _label_set(row: Row, task: BenchmarkTask, classes: Dict[str, int]) -> np.ndarray:
    """Return 1 for each label of a row, else 0: ``(C,)``."""
    if task.label_columns:
        return np.array([_flag(row, column) for column in classes], np.int32)
    value = row.get(task.label_field)
    if value is None:
        raise FieldError(task.label_field, "is missing")
    texts = values_as_text(value, task.separator)
    if len(texts) > 1 and are_flags(texts) and not classes.keys() & FLAGS.keys():  # a vector
        if len(texts) != len(classes):
            raise FieldError(task.label_field, f"has {len(texts)} values of 0 and 1, not {len(classes)}, one a label")
        return np.array([FLAGS[text.lower()] for text in texts], np.int32)
    indicators = np.zeros(len(classes), np.int32)
    for text in texts:
        if text not in classes:
            raise FieldError(task.label_field, f"has {short(text)}, not one of {listed(classes)}")
        indicators[classes[text]] = 1
    return indicators


def _flag(row: Row, column: str) -> int:
    value = row.get(column)
    text = "" if value is None else value_as_text(value)
    if not are_flags([text]):
        raise FieldError(column, "is missing" if value is None else f"is {short(value)}, not 0 or 1")
    return FLAGS[text.lower()]


def _label(row: Row, task: BenchmarkTask, classes: Dict[str, int]) -> float:
    value = _label_text(row, task)
    if not task.is_regression:
        if value not in classes:
            raise FieldError(task.label_field, f"is {short(value)}, not one of {listed(classes)}")
        return classes[value]
    try:
        score = math.nan if "_" in value else float(value)  # Python reads 1_000 as a number
    except ValueError:
        score = math.nan
    low, high = task.score_range
    if not (abs(score) <= LARGEST_SCORE and low <= score <= high):
        bounds = f" from {low:g} to {high:g}" if math.isfinite(high) else ""
        raise FieldError(task.label_field, f"is {short(value)}, not a number{bounds}")
    return score


def find_folder(dataset_dir: Path, task: BenchmarkTask) -> Path:
    """Return the folder of a task, ``dataset_dir`` or the one that the archive makes inside it, that has its files."""
    names = [file.name for split in (task.train, *task.validation, *task.test) for file in split.files]
    for folder in (*(dataset_dir / name for name in task.folders), dataset_dir):
        if any((folder / name).is_file() for name in names):
            return folder
    if not dataset_dir.is_dir():
        raise UserError(f"dataset_dir: there is no folder {dataset_dir}; set it to a folder with {task.folders[0]}")
    raise UserError(
        f"dataset_dir: neither {dataset_dir} nor {task.folders[0]} in it has the files of {task.name}"
        f" ({', '.join(dict.fromkeys(names))}); set it to the folder where {task.benchmark.upper()} was unpacked"
    )


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
