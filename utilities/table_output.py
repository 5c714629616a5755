"""Writes tables of texts: CSV, tab-separated text without quoting, JSON Lines; ``utilities.tables`` reads them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, Iterable, List, Optional, Sequence

from utilities.errors import UserError
from utilities.files import replacing
from utilities.tables import LARGEST_CELL, QUOTED_AS_CSV, Row


def write_table(path: Path, rows: Iterable[Row]) -> None:
    """Write rows to a file, whose suffix is one of ``FORMATS``; in CSV and TSV, with the columns of the first row.

    Numbers, lists and other JSON values are written as JSON, and null as an empty cell. The file appears when it is
    complete, and :func:`utilities.tables.read_table` reads it back. It is a ``UserError``, and there is no file, if the
    format cannot represent a row.
    """
    columns: List[str] = []
    suffix = path.suffix.lower()
    with replacing(path) as binary:
        for number, row in enumerate(rows, 1):
            columns = columns or list(row)
            reason = unwritable(row, columns, suffix)
            if reason is not None:
                raise UserError(f"{path}: row {number} {reason}")
            if suffix not in (".csv", ".tsv"):
                text = json.dumps(row, ensure_ascii=False) + "\n"
            else:
                text = _line(columns, suffix, "\r;\t=") if number == 1 else ""
                text += _line([_cell(row[name]) for name in columns], suffix)
            binary.write(text.encode("utf-8"))


def _line(cells: Sequence[str], suffix: str, marks: str = "\r") -> str:
    if suffix == ".tsv":
        return "\t".join(cells) + "\n"
    # Python quotes \r only if it ends its lines; other marks in a header would be taken for delimiters.
    needs_quotes = any(mark in cell for cell in cells for mark in marks)
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\n", quoting=csv.QUOTE_ALL if needs_quotes else csv.QUOTE_MINIMAL).writerow(cells)
    return line.getvalue()


def unwritable(row: Row, columns: Iterable[str], suffix: str) -> Optional[str]:
    """Return why a row would not be read back after rows with these columns, and what to do; None if it would."""
    if suffix not in (".csv", ".tsv"):
        return None
    json_lines = "name an output that ends with .jsonl"
    names, values = list(columns), [_cell(value) for value in row.values()]
    if row.keys() != set(names):
        return f"has other fields than the first row; {json_lines}"
    if not names or any(name != name.strip() or name.startswith("\ufeff") for name in names):
        return f"has no fields, or one whose name has blanks around it; {json_lines}"
    if any("\0" in cell for cell in (*names, *values)):
        return f"has a text with a NUL character; {json_lines}"
    if suffix == ".csv":
        is_long = any(len(cell) > LARGEST_CELL for cell in values)
        return f"has a text of more than {LARGEST_CELL:,} characters; {json_lines}" if is_long else None
    if any(mark in cell for cell in (*names, *values) for mark in "\t\n\r"):
        return "has a text with a tab or a line break; name an output that ends with .csv"
    if any(map(QUOTED_AS_CSV.fullmatch, values)):
        return "has a text that is quoted as in CSV; name an output that ends with .csv"
    if names == [""] or values == [""]:
        return "would be an empty line; name an output that ends with .csv"
    return None


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
