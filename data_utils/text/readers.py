"""Reads documents: a generator for each format of files, for Parquet and for data sets of the hub.

A reader of files gets the path, for messages, and the open file of its decompressed text.
"""

from __future__ import annotations

import contextlib
import html
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from data_utils.hub_dataset import HubStream, reading_errors
from data_utils.text.compressed import opened
from utilities.errors import UserError
from utilities.files import parse_json
from utilities.tables import short


class Document(NamedTuple):
    """One document: a title, which may be empty, and its text with paragraphs on lines of their own."""

    title: str
    text: str


class RejectedDocument(NamedTuple):
    """A document that could not be read or split into sentences."""

    title: str
    reason: str


Documents = Iterator[Document | RejectedDocument]
Positioned = Iterator[tuple[Document | RejectedDocument, int]]  # with the bytes of the input that have been read
Reader = Callable[[Path, IO[bytes]], Documents]

ROWS_PER_BATCH = 100

_DOC_TITLE = re.compile(r'\btitle="([^"]*)"')
_WIKITEXT_TITLE = re.compile(r"^\s*= ([^=].*?) =\s*$")
_WIKITEXT_HEADING = re.compile(r"^\s*=( =)+ .* =( =)+\s*$")


def read_files(files: Sequence[Path], reader: Reader) -> Positioned:
    """Yield the documents of files that may be compressed."""
    before = 0
    for path in files:
        with opened(path) as (raw, stream):
            for document in reader(path, stream):
                yield document, before + raw.tell()
        before += path.stat().st_size


def _numbered_lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file, from 1, without the mark of UTF-8 at its beginning."""
    for number, line in enumerate(stream, 1):
        yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def _text_lines(path: Path, stream: IO[bytes]) -> Iterator[str]:
    for number, line in _numbered_lines(stream):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file") from error


def read_text(path: Path, stream: IO[bytes], whole_file: bool, join_lines: bool, per_line: bool = False) -> Documents:
    """Read UTF-8 text with a blank line between documents.

    Lines may be wrapped, and are joined into paragraphs then; each file, or each line, may be one document.
    """
    if per_line:
        yield from (Document("", line) for line in _text_lines(path, stream) if line.strip())
        return
    separator = " " if join_lines else "\n"
    lines: list[str] = []
    for line in _text_lines(path, stream):
        if line.strip():
            lines.append(line)
        elif lines and not whole_file:
            yield Document("", separator.join(lines))
            lines = []
        elif lines and join_lines:
            lines.append("\n")  # a blank line still ends a paragraph
    if lines:
        yield Document(path.name if whole_file else "", separator.join(lines))


def read_json_lines(path: Path, stream: IO[bytes], field: str) -> Documents:
    """Read JSON Lines, one document per line, whose text is in ``field``."""
    for number, line in _numbered_lines(stream):
        if number == 1 and line.lstrip().startswith(b"["):
            raise UserError(f"{path}: is a JSON array, not JSON Lines; write each object on a line (jq -c '.[]' FILE)")
        if line.strip():
            yield _from_json(line.strip(), field, f"{path}, line {number}")


def _from_json(text: bytes, field: str, location: str) -> Document | RejectedDocument:
    try:
        record = parse_json(text)
    except json.JSONDecodeError as error:
        return RejectedDocument("", f"{location}: not JSON ({error.msg} at column {error.colno})")
    except UnicodeDecodeError as error:
        return RejectedDocument("", f"{location}: not UTF-8 ({error.reason})")
    except (ValueError, RecursionError) as error:
        return RejectedDocument("", f"{location}: not JSON ({error})")
    if isinstance(record, dict) and isinstance(record.get(field), str):
        title = record.get("title")
        return Document(title if isinstance(title, str) else "", record[field])
    known = f"it has {', '.join(map(str, record))}" if isinstance(record, dict) else "not an object"
    instead = f" ({known}); see --jsonl-field"
    if isinstance(record, dict) and field in record:
        instead = f", but {short(json.dumps(record[field]))}"
    return RejectedDocument("", f"{location}: no text in field {field!r}{instead}")


def read_wikiextractor(path: Path, stream: IO[bytes]) -> Documents:
    """Read WikiExtractor's ``<doc …>`` to ``</doc>``, or the JSON Lines that it writes with ``--json``."""
    begin, title = 0, ""
    lines: list[bytes] = []
    is_inside = has_documents = False
    for number, line in _numbered_lines(stream):
        if not is_inside and line.startswith(b"{"):
            has_documents = True
            document = _from_json(line.strip(), "text", f"{path}, line {number}")
            yield Document(*map(html.unescape, document)) if isinstance(document, Document) else document
        elif line.startswith(b"<doc ") and line.rstrip().endswith(b">"):
            match = _DOC_TITLE.search(line.decode("utf-8", "replace"))
            begin, title, lines = number, html.unescape(match.group(1)) if match else "", []
            is_inside = has_documents = True
        elif line.startswith(b"</doc>") and is_inside:
            is_inside = False
            yield _extracted(f"{path}, line {begin}", title, lines)
        elif is_inside:
            lines.append(line)
    if is_inside or not has_documents:
        reason = "ends within a document" if has_documents else "contains no <doc …> line"
        raise UserError(f"{path}: not WikiExtractor's output: the file {reason}")


def _extracted(location: str, title: str, lines: list[bytes]) -> Document | RejectedDocument:
    try:
        body = [line.decode("utf-8").rstrip("\r\n") for line in lines]
    except UnicodeDecodeError as error:
        return RejectedDocument(title, f"{location}: not UTF-8 ({error.reason})")
    if body and body[0].strip() == title.strip():  # the first line repeats the title, which is not a sentence
        del body[0]
    return Document(title, html.unescape("\n".join(body)))


def read_wikitext(path: Path, stream: IO[bytes]) -> Documents:
    """Read WikiText-2 or WikiText-103, in which `` = Title = `` begins an article and `` @-@ `` is a hyphen."""
    title = ""
    lines: list[str] = []
    for text in _text_lines(path, stream):
        heading = _WIKITEXT_TITLE.match(text)
        if heading:
            if lines:
                yield Document(title, "\n".join(lines))
            title, lines = heading.group(1), []
        elif text.strip() and not _WIKITEXT_HEADING.match(text):
            lines.append(re.sub(r" @(.)@ ", r"\1", text.strip()))
    if lines:
        yield Document(title, "\n".join(lines))


def check_parquet(files: Sequence[Path], column: str) -> None:
    """Check the footers of Parquet files, which are at their ends, before any work."""
    try:
        from pyarrow import types
    except ImportError as error:
        raise UserError("--parquet: needs the package pyarrow, which is not installed: pip install pyarrow") from error
    for path in files:
        with _parquet(path) as file:
            schema = file.schema_arrow
        index = schema.get_field_index(column)
        if index < 0:
            columns = ", ".join(schema.names)
            raise UserError(f"--parquet-column {column}: {path} has no such column; it has {columns}")
        kind = schema.types[index]
        if types.is_dictionary(kind):  # pandas' categories
            kind = kind.value_type
        is_text = types.is_string(kind) or types.is_large_string(kind)
        if not (is_text or types.is_binary(kind) or types.is_large_binary(kind)):
            raise UserError(f"--parquet-column {column}: the column of {path} is {kind}, not text")


def read_parquet(files: Sequence[Path], column: str) -> Positioned:
    """Yield a document for each row of Parquet files, reading one row group at a time."""
    import pyarrow

    before = 0
    for path in files:
        disk_bytes, rows = path.stat().st_size, 0
        with _parquet(path) as file:
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(ROWS_PER_BATCH, [group], [column]):
                    texts = batch.column(0)
                    if isinstance(texts, pyarrow.DictionaryArray):
                        texts = texts.dictionary_decode()
                    for value in texts.cast(pyarrow.large_binary()).to_pylist():
                        rows += 1
                        position = before + disk_bytes * rows // file.metadata.num_rows
                        yield _from_row(value, f"{path}, row {rows}", column), position
        before += disk_bytes


def read_hub(stream: HubStream, column: str) -> Positioned:
    """Yield a document for each row of a data set of the hub; the position is the length of the text so far."""
    length = 0
    with reading_errors(stream.name):
        for number, row in enumerate(stream.rows, 1):
            if column not in row:
                raise UserError(f"--hub-column {column}: {stream.name} has no such column; it has {', '.join(row)}")
            document = _from_row(row[column], f"{stream.name}, row {number}", column)
            length += len(document.text) if isinstance(document, Document) else 0
            yield document, length


def _from_row(value: Any, location: str, column: str) -> Document | RejectedDocument:
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError as error:
            return RejectedDocument("", f"{location}: not UTF-8 ({error.reason})")
    if isinstance(value, str):
        return Document("", value)
    return RejectedDocument("", f"{location}: no text in column {column!r}")


@contextlib.contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    from pyarrow import ArrowException, parquet

    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: cannot be read as Parquet ({reason}); download it again") from error
