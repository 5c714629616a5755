"""Reads tables of texts row by row, with line numbers: CSV, tab-separated text without quoting, JSON Lines.

All are UTF-8, with a byte order mark or without.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from utilities.errors import UserError

# A row of a table by column: texts from CSV and TSV, any JSON values from JSON Lines.
Row = Mapping[str, Any]

REPAIR = "correct it there, or copy the original file again"


class Line(NamedTuple):
    """A row and the number of its (first) line, from 1; ``row`` is None for a line that lacks columns."""

    number: int
    row: Optional[Row]


def read_table(path: Path) -> Iterator[Line]:
    """Yield the rows of a file in the format that its name tells: ``.csv``, ``.tsv``, ``.jsonl`` or ``.json``.

    CSV is read as Python's ``csv`` reads it: a text between quotation marks may hold commas and line breaks. In TSV a
    quotation mark is a character like any other.

    Raises:
        UserError: the file cannot be read, or not as such a format; names file, line and fix.
    """
    rows = FORMATS.get(path.suffix.lower())
    if rows is None:
        raise UserError(f"{path}: its name does not tell its format; end it with .csv, .tsv or .jsonl (JSON Lines)")
    return rows(path)


def csv_rows(path: Path) -> Iterator[Line]:
    """Yield the rows of a CSV file, whose first line has the names of the columns."""
    reader = csv.reader(io.StringIO(_text_of(path), newline=""), strict=True)
    header: Sequence[str] = ()
    number = 1
    try:
        for values in reader:
            if values and header:
                yield Line(number, _row(path, number, header, values))
            elif values:
                header = [name.strip() for name in values]
            number = reader.line_num + 1
    except csv.Error as error:
        fix = "put a text that has a quotation mark between quotation marks, and double those inside it"
        raise UserError(f"{path}: line {number}: is not CSV ({error}); {fix}") from error
    if not header:
        raise UserError(f"{path}: is empty; copy the original file again")


def tab_separated_rows(
    path: Path, header: Optional[Tuple[str, ...]] = None, broken_lines: bool = False
) -> Iterator[Line]:
    """Yield the rows of a tab-separated file without quoting; only a line feed ends a line.

    Args:
        header: the columns, where the file does not begin with them.
        broken_lines: whether to yield lines that lack columns, with no row, in place of an error.
    """
    lines = _text_lines(path)
    if header is None:
        if not lines:
            raise UserError(f"{path}: is empty; copy the original file again")
        header = tuple(name.strip() for name in lines[0][1].split("\t"))
        lines = lines[1:]
    for number, line in lines:
        values = line.split("\t")
        is_broken = broken_lines and len(values) < len(header)
        yield Line(number, None if is_broken else _row(path, number, header, values))


def json_rows(path: Path) -> Iterator[Line]:
    """Yield the object on each line."""
    for number, line in _text_lines(path):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: line {number}: is not JSON ({error}); {REPAIR}") from error
        if not isinstance(row, dict):
            raise UserError(f"{path}: line {number}: is {short(row)}, not an object {{…}}; {REPAIR}")
        yield Line(number, row)


FORMATS: Dict[str, Callable[[Path], Iterator[Line]]] = {
    ".csv": csv_rows,
    ".tsv": tab_separated_rows,
    ".jsonl": json_rows,
    ".json": json_rows,
}


def distinct_values(path: Path, column: str) -> List[str]:
    """Return the different values of a column as texts, sorted: whole numbers by size, other texts by characters.

    Raises:
        UserError: the file cannot be read, or no row has such a column.
    """
    columns: Dict[str, None] = {}
    values = set()
    for _, row in read_table(path):
        assert row is not None, "only broken lines have no row"
        columns.update(dict.fromkeys(row))
        if row.get(column) not in (None, ""):
            values.add(text_of_value(row[column]))
    if column not in columns:
        raise UserError(f"{path}: has no column {column}; name one of its columns, {', '.join(columns)}")
    are_numbers = all(text.isdecimal() for text in values)
    return sorted(values, key=lambda text: (len(text) if are_numbers else 0, text))


def text_of_value(value: Any) -> str:
    """Return a value as text; JSON files have numbers and truth values too."""
    return value.strip() if isinstance(value, str) else json.dumps(value)


def short(value: Any) -> str:
    """Return a value for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _row(path: Path, number: int, header: Sequence[str], values: Sequence[str]) -> Row:
    if len(values) != len(header):
        columns = f"has {len(values)} columns, not the {len(header)} of {', '.join(header)}"
        raise UserError(f"{path}: line {number}: {columns}; {REPAIR}")
    return dict(zip(header, values))


def _text_of(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); copy it again") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}: line {number}: is not UTF-8 ({error.reason}); save it as UTF-8") from error


def _text_lines(path: Path) -> List[Tuple[int, str]]:
    """Return the lines of a file that are not empty, with their numbers from 1."""
    lines = ((number, line.rstrip("\r")) for number, line in enumerate(_text_of(path).split("\n"), start=1))
    return [(number, line) for number, line in lines if line]
