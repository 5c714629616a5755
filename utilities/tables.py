"""Reads tables of texts row by row: CSV, tab-separated text without quoting, JSON Lines.

Files are UTF-8, with a byte order mark or without, or UTF-16 with one, and may be larger than the memory.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import itertools
import json
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from utilities.errors import UserError
from utilities.files import parse_json

# A row of a table by column: texts from CSV and TSV, any JSON values from JSON Lines.
Row = Mapping[str, Any]

REPAIR = "correct it there"
QUOTED_AS_CSV = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')  # with quotation marks inside, which are doubled
_ONE_OBJECT = "write one object {…} on each line, or an array of them"
_NAMED_DELIMITER = re.compile(r"sep=(.)")
FLAGS = {"0": 0, "1": 1, "0.": 0, "1.": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
_NUMPY_VALUE = r"(?:\d+\.?|'[^']*'|\"[^\"]*\")"
_NUMPY_LIST = re.compile(rf"\[\s*{_NUMPY_VALUE}(?:\s+{_NUMPY_VALUE})+\s*\]")  # without commas
LARGEST_CELL = 1 << 24  # characters of a cell in CSV; a quotation mark that is not closed ends there


class Line(NamedTuple):
    """A row and the number of its (first) line, from 1; the row of a line that lacks columns is empty."""

    number: int
    row: Row


def read_table(path: Path) -> Iterator[Line]:
    """Yield the rows of a file; its suffix, ``.csv``, ``.tsv``, ``.jsonl`` or ``.json``, determines the format.

    CSV is read as Python's ``csv`` reads it: a text between quotation marks may contain commas and line breaks.
    Semicolons or tabs may stand for the commas, as Excel writes them where the comma is the decimal mark. In TSV a
    quotation mark is a character like any other, and texts that are quoted as in CSV are refused. JSON Lines may also
    be one array.
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
    lines, skipped = read_lines(path, newline=""), 0
    first = next(lines, "")
    named = _NAMED_DELIMITER.fullmatch(first.rstrip("\r\n"))  # Excel's first line
    if named is not None:
        first, skipped = next(lines, ""), 1
    delimiter = named[1] if named is not None else _delimiter(first)
    lines = itertools.chain([first], lines)
    reader = csv.reader(lines, strict=True, skipinitialspace=blanks_after_commas, delimiter=delimiter)
    header: Sequence[str] = ()
    number = skipped + 1
    try:
        for values in reader:
            if values and header:
                yield Line(number, _row(path, number, header, values))
            elif values[1:] and not blanks_after_commas and all(name.startswith(" ") for name in values[1:]):
                yield from csv_rows(path, blanks_after_commas=True)
                return
            elif values:
                header = _columns(path, values)
            number = skipped + reader.line_num + 1
    except csv.Error as error:
        fix = "put a text that has a quotation mark between quotation marks, and double those inside it"
        if "field limit" in str(error):
            fix = "shorten the text, of which BERT reads 512 pieces, or close the quotation marks around it"
        raise UserError(f"{path}: line {number}: is not CSV ({error}); {fix}") from error
    if not header:
        raise UserError(f"{path}: is empty; add rows, or name another file")


def _delimiter(header: str) -> str:
    """Return the mark between the names of a header: a comma, or a semicolon or a tab if it has no comma."""
    found = [mark for mark in ",;\t" if mark in re.sub(r'"[^"]*"', "", header)]
    return found[0] if found else ","


def tab_separated_rows(
    path: Path, header: Optional[Tuple[str, ...]] = None, broken_lines: bool = False
) -> Iterator[Line]:
    """Yield the rows of a tab-separated file without quoting; only a line feed ends a line.

    Args:
        broken_lines: whether to yield an empty row for a line that lacks columns, instead of raising an error.
    """
    lines = _text_lines(path)
    if header is None:
        _, first = next(lines, (0, None))
        if first is None:
            raise UserError(f"{path}: is empty; add rows, or name another file")
        header = _columns(path, first.split("\t"))
    for number, line in lines:
        values = line.split("\t")
        is_broken = broken_lines and len(values) < len(header)
        yield Line(number, {} if is_broken else _row(path, number, header, values))


def _unquoted_rows(path: Path) -> Iterator[Line]:
    for number, row in tab_separated_rows(path):
        quoted = next((value for value in row.values() if QUOTED_AS_CSV.fullmatch(value)), None)
        if quoted is not None:
            fix = "write the table as .csv with commas, or without quoting (pandas: quoting=csv.QUOTE_NONE)"
            raise UserError(f"{path}: line {number}: the text {short(quoted)} is quoted as in CSV; {fix}")
        yield Line(number, row)


def json_rows(path: Path) -> Iterator[Line]:
    """Yield the object on each line, or those of one array."""
    for number, row in json_values(path):
        if not isinstance(row, dict):
            raise UserError(f"{path}: line {number}: is {short(row)}, not an object {{…}}; {_ONE_OBJECT}")
        yield Line(number, row)


def json_values(path: Path) -> Iterator[Tuple[int, Any]]:
    """Yield the line number and the value of each line, or of each element of an array that is the whole file."""
    first_two = [line for _, line in itertools.islice(_text_lines(path, blank=False), 2)]
    if first_two and first_two[0].lstrip().startswith("[") and not (len(first_two) > 1 and _is_json(first_two[0])):
        yield from _elements(path)
        return
    for number, line in _text_lines(path, blank=False):
        try:
            value = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: line {number}: is not JSON ({error}); {_ONE_OBJECT}") from error
        yield number, value


def _is_json(line: str) -> bool:
    try:
        return json.loads(line) is not None
    except (ValueError, RecursionError):
        return False


def _elements(path: Path) -> Iterator[Tuple[int, Any]]:
    """Yield the elements of a file that is one JSON array, each with the number of the line on which it begins."""
    text, place, line = read_text(path), 0, 1
    blank, decoder = re.compile(r"[\s,]*"), json.JSONDecoder()
    try:
        parse_json(text)
        begin = text.index("[") + 1
        while True:
            begin = blank.match(text, begin).end()  # type: ignore[union-attr]  # it matches nothing, too
            if text[begin] == "]":
                return
            value, end = decoder.raw_decode(text, begin)
            line, place = line + text.count("\n", place, begin), begin
            yield line, value
            begin = end
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: line 1: is not JSON ({error}); {_ONE_OBJECT}") from error


FORMATS: Dict[str, Callable[[Path], Iterator[Line]]] = {
    ".csv": csv_rows,
    ".tsv": _unquoted_rows,
    ".jsonl": json_rows,
    ".json": json_rows,
}


def check_columns(path: Path, columns: Sequence[str]) -> None:
    first = next(iter(read_table(path)), None)
    if first is None:
        raise UserError(f"{path}: has no rows, at most a header; add rows, or name another file")
    for column in columns:
        if column not in first.row:
            raise UserError(f"{path}: has no column {column}; name one of its columns, {listed(first.row)}")


def has_lists(path: Path, column: str) -> bool:
    """Return whether the first value of a column is a list, or one that is written as text."""
    cells = (row.get(column) for _, row in read_table(path))
    return isinstance(_listed_values(next((cell for cell in cells if cell not in (None, "")), None)), list)


def distinct_values(path: Path, column: str, separator: Optional[str] = None) -> List[str]:
    """Return the different values of a column as texts, sorted: whole numbers by size, other texts by characters.

    If the cells are vectors of 0 and 1, these are the places of a vector: ``LABEL_0``, ``LABEL_1``, …. A row has one
    value, or several between separators.
    """
    values: Set[str] = set()
    lengths: Dict[int, int] = {}  # of the cells, and the line of the first with this length
    has_repeated = False
    for number, row in read_table(path):
        cell = row.get(column)
        if isinstance(cell, dict) or (isinstance(cell, list) and any(isinstance(each, (dict, list)) for each in cell)):
            fix = "write a name or a number, a list of these, or a column of 0 and 1 for each label"
            raise UserError(f"{path}: line {number}: {column} is {short(cell)}, which is no label; {fix}")
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
    """Return the list that a text is, as JSON, Python or NumPy writes it; any other value unchanged."""
    if isinstance(value, str) and value.strip().startswith("[") and value.strip().endswith("]"):
        if _NUMPY_LIST.fullmatch(value.strip()):
            return [each.strip("'\"") for each in re.findall(_NUMPY_VALUE, value)]
        for read in (parse_json, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError, RecursionError):
                return read(value.strip())
    return value


def check_flags(path: Path, columns: Sequence[str]) -> None:
    """Check that columns have 0 and 1 only."""
    for number, row in read_table(path):
        for column in columns:
            value = row.get(column)
            if value is None or not are_flags([value_as_text(value)]):
                what = f"{column} is {short(value)}, not 0 or 1, as a column of a label has"
                raise UserError(f"{path}: line {number}: {what}; {REPAIR}, or name another column")


def are_flags(texts: Iterable[str]) -> bool:
    """Return whether values are 0 and 1, false and true, only."""
    return all(text.lower() in FLAGS for text in texts)


def short(value: Any) -> str:
    """Return a value for a message, on one line and truncated if it is long."""
    text = " ".join(map(str.strip, repr(value).splitlines()))
    return text if len(text) <= 40 else text[:39] + "…"


def lines_named(numbers: Sequence[int]) -> str:
    """Return numbers of lines for a message, at most the first five.

    Example:
        >>> lines_named([3]), lines_named([3, 5]), lines_named(range(1, 10))
        ('line 3', 'lines 3, 5', 'lines 1, 2, 3, 4, 5, … (9 in all)')
    """
    shown = ", ".join(map(str, numbers[:5]))
    more = f", … ({len(numbers):,} in all)" if len(numbers) > 5 else ""
    return f"line{'s' * (len(numbers) > 1)} {shown}{more}"


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


def titled(title: str, header: Sequence[str], rows: Iterable[Sequence[str]], sides: str = "<") -> Iterator[str]:
    """Yield a table with a title and aligned columns; ``sides`` is that of :func:`aligned`."""
    yield ""
    yield title
    yield from (f"  {line}" for line in aligned([header, *rows] if header else list(rows), sides))


def counted(names: Sequence[str]) -> str:
    """Return names with repetitions counted, ``emb hid×3``."""
    runs = [(name, len(list(run))) for name, run in itertools.groupby(names)]
    return " ".join(name if count == 1 else f"{name}×{count}" for name, count in runs)


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
    """Return the text of a UTF-8 file, or of a UTF-16 file that says so, without its byte order mark.

    It is a ``UserError``, which names the line, if the file is not UTF-8, or contains a NUL.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); correct the path or its permissions") from error
    try:
        text = data.decode(_encoding(data[:2]))
    except UnicodeDecodeError as error:
        number, fix = data.count(b"\n", 0, error.start) + 1, "save it as UTF-8 (Excel: CSV UTF-8)"
        raise UserError(f"{path}: line {number}: is not UTF-8 ({error.reason}); {fix}") from error
    if "\0" in text:
        number = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(f"{path}: line {number}: has a NUL character, as UTF-16 does; save it as UTF-8, without NULs")
    return text


def _encoding(beginning: bytes) -> str:
    return "utf-16" if beginning in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8-sig"


def _text_lines(path: Path, blank: bool = True) -> Iterator[Tuple[int, str]]:
    """Yield the lines of a file that are not empty, with their numbers from 1; only a line feed ends a line."""
    lines = ((number, line.rstrip("\r\n")) for number, line in enumerate(read_lines(path), start=1))
    return ((number, line) for number, line in lines if (line if blank else line.strip()))


def read_lines(path: Path, newline: str = "\n") -> Iterator[str]:
    """Yield the lines of a file with their ends, which ``open`` finds by ``newline``; see :func:`read_text`."""
    try:
        with open(path, "rb") as binary:
            encoding = _encoding(binary.read(2))
        with open(path, encoding=encoding, newline=newline) as file:
            for line in file:
                if "\0" in line:
                    read_text(path)  # its error names the line of the file
                yield line
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); correct the path or its permissions") from error
    except UnicodeDecodeError:
        read_text(path)
        raise
