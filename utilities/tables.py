"""Reads and writes tables of texts row by row: CSV, tab-separated text without quoting, JSON Lines.

Files are UTF-8, with a byte order mark or without, and may be larger than the memory.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import itertools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from utilities.errors import UserError
from utilities.files import parse_json, replacing

# A row of a table by column: texts from CSV and TSV, any JSON values from JSON Lines.
Row = Mapping[str, Any]

REPAIR = "correct it there, or copy the original file again"
QUOTED_AS_CSV = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')  # with quotation marks inside, which are doubled
FLAGS = {"0": 0, "1": 1, "0.": 0, "1.": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
_NUMPY_NUMBERS = re.compile(r"\[\s*\d\.?(?:\s+\d\.?)+\s*\]")
LARGEST_CELL = 1 << 24  # characters of a cell in CSV; a quotation mark that is not closed ends there


class Line(NamedTuple):
    """A row and the number of its (first) line, from 1; ``row`` is None for a line that lacks columns."""

    number: int
    row: Optional[Row]


def read_table(path: Path) -> Iterator[Line]:
    """Yield the rows of a file; its suffix, ``.csv``, ``.tsv``, ``.jsonl`` or ``.json``, determines the format.

    CSV is read as Python's ``csv`` reads it: a text between quotation marks may contain commas and line breaks. In TSV
    a quotation mark is a character like any other, and texts that are quoted as in CSV are refused.

    Raises:
        UserError: the file cannot be read, or is not in this format; the message names file, line and fix.
    """
    read_rows = FORMATS.get(path.suffix.lower())
    if read_rows is None:
        raise UserError(f"{path}: its format is unknown; its name must end with .csv, .tsv or .jsonl (JSON Lines)")
    return read_rows(path)


def csv_rows(path: Path, blanks_after_commas: bool = False) -> Iterator[Line]:
    """Yield the rows of a CSV file, whose first line has the names of the columns.

    Args:
        blanks_after_commas: whether these belong to the commas, not to the texts; also if all of the first line do.
    """
    csv.field_size_limit(LARGEST_CELL)  # Python has one limit for all readers of a process, 131,072
    reader = csv.reader(read_lines(path, newline=""), strict=True, skipinitialspace=blanks_after_commas)
    header: Sequence[str] = ()
    number = 1
    try:
        for values in reader:
            if values and header:
                yield Line(number, _row(path, number, header, values))
            elif values[1:] and all(name.startswith(" ") for name in values[1:]):
                yield from csv_rows(path, blanks_after_commas=True)
                return
            elif values:
                header = _columns(path, values)
            number = reader.line_num + 1
    except csv.Error as error:
        fix = "put a text that has a quotation mark between quotation marks, and double those inside it"
        if "field limit" in str(error):
            fix = "shorten the text, of which BERT reads 512 pieces, or close the quotation marks around it"
        raise UserError(f"{path}: line {number}: is not CSV ({error}); {fix}") from error
    if not header:
        raise UserError(f"{path}: is empty; copy the original file again")


def tab_separated_rows(
    path: Path, header: Optional[Tuple[str, ...]] = None, broken_lines: bool = False
) -> Iterator[Line]:
    """Yield the rows of a tab-separated file without quoting; only a line feed ends a line.

    Args:
        header: the columns, if the file does not begin with them.
        broken_lines: whether to yield lines that lack columns, without a row, instead of raising an error.
    """
    lines = _text_lines(path)
    if header is None:
        _, first = next(lines, (0, None))
        if first is None:
            raise UserError(f"{path}: is empty; copy the original file again")
        header = _columns(path, first.split("\t"))
    for number, line in lines:
        values = line.split("\t")
        is_broken = broken_lines and len(values) < len(header)
        yield Line(number, None if is_broken else _row(path, number, header, values))


def _unquoted_rows(path: Path) -> Iterator[Line]:
    """Yield the rows of a tab-separated file, in which texts are not quoted.

    Raises:
        UserError: a text is quoted as in CSV, as pandas writes those with quotation marks.
    """
    for number, row in tab_separated_rows(path):
        quoted = next((value for value in (row or {}).values() if QUOTED_AS_CSV.fullmatch(value)), None)
        if quoted is not None:
            fix = "write the table as .csv with commas, or without quoting (pandas: quoting=csv.QUOTE_NONE)"
            raise UserError(f"{path}: line {number}: the text {short(quoted)} is quoted as in CSV; {fix}")
        yield Line(number, row)


def json_rows(path: Path) -> Iterator[Line]:
    """Yield the object on each line."""
    fix = "write one object {…} on each line, or copy the original file again"
    for number, line in _text_lines(path):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: line {number}: is not JSON ({error}); {fix}") from error
        if not isinstance(row, dict):
            raise UserError(f"{path}: line {number}: is {short(row)}, not an object {{…}}; {fix}")
        yield Line(number, row)


FORMATS: Dict[str, Callable[[Path], Iterator[Line]]] = {
    ".csv": csv_rows,
    ".tsv": _unquoted_rows,
    ".jsonl": json_rows,
    ".json": json_rows,
}


def write_table(path: Path, rows: Iterable[Row]) -> None:
    """Write rows to a file, whose suffix is one of ``FORMATS``; in CSV and TSV, with the columns of the first row.

    Numbers, lists and other JSON values are written as JSON, and null as an empty cell. The file appears when it is
    complete, and :func:`read_table` reads it back.

    Raises:
        UserError: the format cannot represent a row, as :func:`unwritable` says; there is no file then.
    """
    with replacing(path) as binary:
        rows = _checked(path, rows)
        stream = io.TextIOWrapper(binary, encoding="utf-8", newline="")
        if path.suffix.lower() == ".csv":
            plain, quoted = (
                csv.writer(stream, lineterminator="\n"),
                csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL),
            )
            for cells in _cells(rows):
                needs_quotes = any("\r" in cell for cell in cells)  # Python quotes them only if \r ends its lines
                (quoted if needs_quotes else plain).writerow(cells)
        elif path.suffix.lower() == ".tsv":
            stream.writelines("\t".join(cells) + "\n" for cells in _cells(rows))
        else:
            stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        stream.flush()
        stream.detach()  # closing it would close the file before it is on the disk


def _checked(path: Path, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows that the format can represent."""
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


def check_columns(path: Path, columns: Sequence[str]) -> None:
    """Check that the first row of a file has these columns.

    Raises:
        UserError: the file cannot be read, has no rows, or lacks a column.
    """
    first = next(iter(read_table(path)), None)
    if first is None or first.row is None:
        raise UserError(f"{path}: has no rows, at most a header; add rows, or name another file")
    for column in columns:
        if column not in first.row:
            raise UserError(f"{path}: has no column {column}; name one of its columns, {listed(first.row)}")


def has_lists(path: Path, column: str) -> bool:
    """Return whether the first value of a column is a list, or one that is written as text.

    Raises:
        UserError: the file cannot be read.
    """
    cells = (row.get(column) for _, row in read_table(path) if row is not None)
    return isinstance(_listed_values(next((cell for cell in cells if cell not in (None, "")), None)), list)


def distinct_values(path: Path, column: str, separator: Optional[str] = None) -> List[str]:
    """Return the different values of a column as texts, sorted: whole numbers by size, other texts by characters.

    If the cells are vectors of 0 and 1, these are the places of a vector: ``LABEL_0``, ``LABEL_1``, ….

    Args:
        separator: separates the values of a row; None if it has one.

    Raises:
        UserError: the file cannot be read, or vectors have different lengths.
    """
    values: Set[str] = set()
    lengths: Dict[int, int] = {}  # of the cells, and the line of the first with this length
    has_repeated = False
    for number, row in read_table(path):
        cell = None if row is None else row.get(column)
        texts = [] if cell is None else list(filter(None, values_as_text(cell, separator)))
        values.update(texts)
        if texts:
            lengths.setdefault(len(texts), number)
            has_repeated = has_repeated or len(set(texts)) < len(texts)
    if max(lengths, default=0) > 1 and are_flags(values) and (has_repeated or len(lengths) == 1):
        if len(lengths) > 1:
            (first, line), (second, other) = list(lengths.items())[:2]
            found = f"{column} has {second} values of 0 and 1, and {first} on line {line}"
            raise UserError(f"{path}: line {other}: {found}; give each row one for each label")
        return [f"LABEL_{number}" for number in range(*lengths)]
    are_numbers = all(text.isdecimal() for text in values)
    return sorted(values, key=lambda text: (len(text) if are_numbers else 0, text))


def value_as_text(value: Any) -> str:
    """Return a value as text; JSON files also contain numbers and truth values."""
    return value.strip() if isinstance(value, str) else json.dumps(value)


def values_as_text(value: Any, separator: Optional[str]) -> List[str]:
    """Return the values of a cell: texts between separators, or the elements of a list; None: one value.

    A list may also be written as text, by JSON or by Python.
    """
    if separator is None:
        return [value_as_text(value)]
    value = _listed_values(value)
    parts = value if isinstance(value, list) else value_as_text(value).split(separator)
    return [text for text in map(value_as_text, parts) if text]


def _listed_values(value: Any) -> Any:
    """Return the list that a text is, as JSON, Python or NumPy (of numbers) writes it; any other value unchanged."""
    if isinstance(value, str) and value.strip().startswith("[") and value.strip().endswith("]"):
        if _NUMPY_NUMBERS.fullmatch(value.strip()):
            return value.strip("[] \t\r\n").split()
        with contextlib.suppress(ValueError, SyntaxError, RecursionError):
            return ast.literal_eval(value.strip())
    return value


def are_flags(texts: Iterable[str]) -> bool:
    """Return whether values are 0 and 1, false and true, only."""
    return all(text.lower() in FLAGS for text in texts)


def short(value: Any) -> str:
    """Return a value for a message, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


def listed(names: Iterable[str]) -> str:
    """Return names for a message, at most the first ten."""
    first = [name if len(name) <= 40 else name[:39] + "…" for name in itertools.islice(names, 11)]
    return ", ".join(first[:10]) + (", …" if len(first) > 10 else "")


def aligned(rows: Sequence[Sequence[str]], sides: str = "<") -> Iterator[str]:
    """Yield rows as lines of text with aligned columns; ``sides`` has < or > for each column, the last for all others.

    Example:
        >>> list(aligned([["loss", "1.5"], ["f1", "81.25"]], "<>"))
        ['loss    1.5', 'f1    81.25']
    """
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        cells = (f"{cell:{side}{width}}" for cell, side, width in zip(row, sides.ljust(len(row), sides[-1]), widths))
        yield "  ".join(cells).rstrip()


def _columns(path: Path, values: Sequence[str]) -> Tuple[str, ...]:
    """Return the names of the columns; the first may be without a name, others are then called ``column 5``."""
    stripped = [name.strip() for name in values]
    unnamed = [number for number, name in enumerate(stripped) if not name]
    names = tuple(f"column {n + 1}" if n in unnamed[1:] else name for n, name in enumerate(stripped))
    repeated = next((name for name, count in Counter(names).items() if count > 1), None)
    if repeated is not None:
        raise UserError(f"{path}: has the column {short(repeated)} twice; give each column a name of its own")
    return names


def _row(path: Path, number: int, header: Sequence[str], values: Sequence[str]) -> Row:
    if len(values) != len(header):
        columns = f"has {len(values)} columns, not the {len(header)} of {listed(header)}"
        raise UserError(f"{path}: line {number}: {columns}; {REPAIR}")
    return dict(zip(header, values))


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, without its byte order mark.

    Raises:
        UserError: the file cannot be read, is not UTF-8, or contains a NUL; the message names the line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); copy it again") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}: line {number}: is not UTF-8 ({error.reason}); save it as UTF-8") from error
    if "\0" in text:
        number = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(f"{path}: line {number}: has a NUL character, as UTF-16 does; save it as UTF-8, without NULs")
    return text


def _text_lines(path: Path) -> Iterator[Tuple[int, str]]:
    """Yield the lines of a file that are not empty, with their numbers from 1; only a line feed ends a line."""
    lines = ((number, line.rstrip("\r\n")) for number, line in enumerate(read_lines(path), start=1))
    return ((number, line) for number, line in lines if line)


def read_lines(path: Path, newline: str = "\n") -> Iterator[str]:
    """Yield the lines of a UTF-8 file with their ends, without its byte order mark.

    Args:
        newline: as ``open`` takes it; by default, only a line feed ends a line.

    Raises:
        UserError: as :func:`read_text` does.
    """
    try:
        with open(path, encoding="utf-8-sig", newline=newline) as file:
            for line in file:
                if "\0" in line:
                    read_text(path)  # its error names the line of the file
                yield line
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); copy it again") from error
    except UnicodeDecodeError:
        read_text(path)
        raise
