"""Rows of a task's files: GLUE's tab-separated values and CLUE's JSON lines, each row with its line number.

GLUE's files have no quoting: a quotation mark is a character like any other, and only a line feed ends a line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional, Tuple

from data_utils.classification.tasks import GLUE, BenchmarkTask, Row, SourceFile, Split, short
from utilities.errors import UserError

REPAIR = "correct it there, or copy the benchmark's own file again"


class Line(NamedTuple):
    """A row and where it stands; ``row`` is None for a line that lacks fields."""

    number: int  # from 1
    row: Optional[Row]


class FoundFile(NamedTuple):
    """The file that holds a split."""

    path: Path
    source: SourceFile


def find_folder(dataset_dir: Path, task: BenchmarkTask) -> Path:
    """The task's folder: ``dataset_dir`` itself, or the one that the benchmark's archive makes inside it.

    Raises:
        UserError: neither has the task's files.
    """
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


def find_file(folder: Path, task: BenchmarkTask, split: Split) -> Optional[FoundFile]:
    """The file of a split; None where it is absent and may be.

    Raises:
        UserError: it is absent and must not be.
    """
    for source in split.files:
        if (folder / source.name).is_file():
            return FoundFile(folder / source.name, source)
    if split.optional:
        return None
    wanted = " or ".join(source.name for source in split.files)
    raise UserError(f"dataset_dir: {folder} has no {wanted}, which {task.name} needs; copy it there")


def read_lines(found: FoundFile, task: BenchmarkTask) -> Iterator[Line]:
    """The rows of a file, in order; empty lines are passed over.

    Raises:
        UserError: a line is not what the format says; names file, line and fix.
    """
    lines = text_lines(found.path)
    if task.benchmark == GLUE:
        return tab_separated(found, lines, task.broken_lines)
    return json_lines(found.path, lines)


def text_lines(path: Path) -> List[Tuple[int, str]]:
    """The lines of a file that are not empty, with their numbers from 1.

    Raises:
        UserError: the file cannot be read or is not UTF-8.
    """
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


def tab_separated(found: FoundFile, lines: List[Tuple[int, str]], broken_lines: bool) -> Iterator[Line]:
    """Rows of tab-separated values."""
    header, path = found.source.header, found.path
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


def json_lines(path: Path, lines: List[Tuple[int, str]]) -> Iterator[Line]:
    """Rows of JSON lines."""
    for number, line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: line {number}: is not JSON ({error}); {REPAIR}") from error
        if not isinstance(row, dict):
            raise UserError(f"{path}: line {number}: is {short(row)}, not an object {{…}}; {REPAIR}")
        yield Line(number, row)
