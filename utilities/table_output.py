"""Writes tables of texts: CSV, tab-separated text without quoting, JSON Lines; ``utilities.tables`` reads them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Optional

from utilities.errors import UserError
from utilities.files import replacing
from utilities.tables import LARGEST_CELL, QUOTED_AS_CSV, Row


def write_table(path: Path, rows: Iterable[Row]) -> None:
    """Write rows to a file, whose suffix is one of ``FORMATS``; in CSV and TSV, with the columns of the first row.

    Numbers, lists and other JSON values are written as JSON, and null as an empty cell. The file appears when it is
    complete, and :func:`utilities.tables.read_table` reads it back. It is a ``UserError``, and there is no file, if the
    format cannot represent a row.
    """
    with replacing(path) as binary:
        rows = _checked(path, rows)
        stream = io.TextIOWrapper(binary, encoding="utf-8", newline="")
        if path.suffix.lower() == ".csv":
            plain = csv.writer(stream, lineterminator="\n")
            quoted = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
            for number, cells in enumerate(_cells(rows)):
                # Python quotes \r only if it ends its lines; other marks in a header would be taken for delimiters.
                needs_quotes = any(mark in cell for cell in cells for mark in ("\r" if number else "\r;\t="))
                (quoted if needs_quotes else plain).writerow(cells)
        elif path.suffix.lower() == ".tsv":
            stream.writelines("\t".join(cells) + "\n" for cells in _cells(rows))
        else:
            stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        stream.flush()
        stream.detach()  # closing it would close the file before it is on the disk


def _checked(path: Path, rows: Iterable[Row]) -> Iterator[Row]:
    columns: Optional[List[str]] = None
    for number, row in enumerate(rows, 1):
        columns = list(row) if columns is None else columns
        reason = unwritable(row, columns, path.suffix.lower())
        if reason is not None:
            raise UserError(f"{path}: row {number} {reason}")
        yield row


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


def _cells(rows: Iterable[Row]) -> Iterator[List[str]]:
    """Yield the names of the columns and then the cells of each row."""
    header: Optional[List[str]] = None
    for row in rows:
        if header is None:
            header = list(row)
            yield header
        yield [_cell(row[name]) for name in header]


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
