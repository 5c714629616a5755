"""Documents, readers for text formats other than dumps, and the list of unusable documents.

A reader yields the documents of a part of a file: a span of it, or a chunk of its decompressed text. Parts begin where
documents begin; the patterns here show where files may be cut.
"""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from data_utils.text.compressed import opened
from data_utils.text.units import Chunk, Span
from utilities.errors import UserError
from utilities.files import parse_json, write_atomically

LINE_END = re.compile(rb"\n")
BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")
WIKIEXTRACTOR_BOUNDARY = re.compile(rb"\n(?=<doc )")
WIKITEXT_BOUNDARY = re.compile(rb"\n(?=[ \t]*= [^=\n][^\n]* =[ \t\r]*\n)")

REJECTED_NAME = "set_aside.jsonl"  # the name that earlier versions gave it
DEFAULT_MAX_REJECTED = 1000
MAX_REASON_CHARACTERS = 300

_DOC_TITLE = re.compile(r'\btitle="([^"]*)"')
_WIKITEXT_TITLE = re.compile(r"^\s*= ([^=].*?) =\s*$")
_WIKITEXT_HEADING = re.compile(r"^\s*=( =)+ .* =( =)+\s*$")


class Document(NamedTuple):
    """One document: a title, which may be empty, and its text with paragraphs on lines of their own."""

    title: str
    text: str


class RejectedDocument(NamedTuple):
    """A document that could not be read, cleaned or split into sentences, and the reason."""

    title: str
    reason: str


class RejectedDocuments:
    """All rejected documents of a run, by work unit; ``folder/set_aside.jsonl`` lists them.

    More than ``limit`` end the run.
    """

    def __init__(self, limit: int, folder: Path):
        self.limit, self.folder = limit, folder
        self._by_unit: dict[int, list[RejectedDocument]] = {}
        self.count = 0

    def add(self, unit: int, documents: Iterable[tuple[str, str] | list[str]]) -> None:
        """Add the rejected documents of a unit.

        Raises:
            UserError: There are too many; the list is written in any case.
        """
        rejected = [RejectedDocument(*document) for document in documents]
        if rejected:
            self._by_unit[unit] = rejected
            self.count += len(rejected)
        if self.count > self.limit:
            self.write()
            raise UserError(
                f"{self.count:,} articles cannot be used, more than --max-bad-articles {self.limit} allows; the first:"
                f" {self.first()}; all of them: {self.folder / REJECTED_NAME}"
            )

    def note(self) -> str:
        return f", {self.count:,} rejected" if self.count else ""

    def first(self) -> str:
        """Describe the first document for a message; return an empty text if there is none."""
        if not self._by_unit:
            return ""
        title, reason = self._by_unit[min(self._by_unit)][0]
        return f"{title!r}: {reason}" if title else reason

    def write(self) -> None:
        """Write ``set_aside.jsonl`` in the order of the input, unless it would be empty."""
        path = self.folder / REJECTED_NAME
        documents = [document for unit in sorted(self._by_unit) for document in self._by_unit[unit]]
        if documents:
            lines = [json.dumps(document._asdict(), ensure_ascii=False) + "\n" for document in documents]
            write_atomically(path, "".join(lines).encode())
        else:
            path.unlink(missing_ok=True)


def describe_error(error: Exception) -> str:
    """Describe an exception in one line."""
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text}"[:MAX_REASON_CHARACTERS]


class _Line(NamedTuple):
    """A line and its position in the text of its file."""

    path: Path
    offset: int
    data: bytes

    def decoded(self) -> str:
        try:
            return self.data.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(f"{self.location()}: not UTF-8 ({error.reason}); convert the file") from error

    def location(self) -> str:
        """Return file and line number; lines are counted only if there is an error to report."""
        number, left = 1, self.offset
        with opened(self.path) as (_, stream):
            while left and (block := stream.read(min(left, 1 << 20))):
                number += block.count(b"\n")
                left -= len(block)
        return f"{self.path}, line {number}"


def _lines(part: Span | Chunk) -> Iterator[_Line]:
    with io.BytesIO(part.data) if isinstance(part, Chunk) else open(part.path, "rb") as stream:
        if isinstance(part, Span):
            stream.seek(part.start)
        offset = part.start
        while offset < part.end:
            line = stream.readline()
            yield _Line(part.path, offset, line.removeprefix(b"\xef\xbb\xbf") if offset == 0 else line)
            offset += len(line)


@dataclass(frozen=True)
class PlainText:
    """Reads UTF-8 text with a blank line between documents.

    Attributes:
        whole_file: Whether each file is one document.
        join_lines: Whether to join lines, which are wrapped, into paragraphs.
    """

    whole_file: bool
    join_lines: bool

    def __call__(self, part: Span | Chunk) -> Iterator[Document]:
        separator = " " if self.join_lines else "\n"
        lines: list[str] = []
        for line in _lines(part):
            text = line.decoded()
            if text.strip():
                lines.append(text)
            elif lines and not self.whole_file:
                yield Document("", separator.join(lines))
                lines = []
            elif lines and self.join_lines:
                lines.append("\n")  # a blank line still ends a paragraph
        if lines:
            yield Document(part.path.name if self.whole_file else "", separator.join(lines))


@dataclass(frozen=True)
class JsonLines:
    """Reads JSON Lines, one document per line, whose text is in ``field``."""

    field: str

    def __call__(self, part: Span | Chunk) -> Iterator[Document | RejectedDocument]:
        for line in _lines(part):
            if line.data.strip():
                document = self._document(line.data.strip())
                yield (
                    document
                    if isinstance(document, Document)
                    else RejectedDocument("", f"{line.location()}: {document}")
                )

    def _document(self, text: bytes) -> Document | str:
        """Return the document, or the reason why it cannot be used."""
        try:
            record = parse_json(text)
        except json.JSONDecodeError as error:
            return f"not JSON ({error.msg} at column {error.colno})"
        except UnicodeDecodeError as error:
            return f"not UTF-8 ({error.reason})"
        except (ValueError, RecursionError) as error:
            return f"not JSON ({error})"
        if isinstance(record, dict) and isinstance(record.get(self.field), str):
            title = record.get("title")
            return Document(title if isinstance(title, str) else "", record[self.field])
        known = f"it has {', '.join(map(str, record))}" if isinstance(record, dict) else "not an object"
        return f"no text in field {self.field!r} ({known}); see --jsonl-field"


def read_wikiextractor(part: Span | Chunk) -> Iterator[Document | RejectedDocument]:
    """Read WikiExtractor's ``<doc …>`` to ``</doc>``."""
    first: _Line | None = None
    lines: list[bytes] = []
    has_documents = False
    for line in _lines(part):
        if line.data.startswith(b"<doc ") and line.data.rstrip().endswith(b">"):
            first, lines, has_documents = line, [], True
        elif line.data.startswith(b"</doc>") and first is not None:
            yield _extracted(first, lines)
            first = None
        elif first is not None:
            lines.append(line.data)
    if first is not None or not has_documents:
        reason = "ends within a document" if has_documents else "contains no <doc …> line"
        raise UserError(f"{part.path}: not WikiExtractor's output: the file {reason}")


def _extracted(first: _Line, lines: list[bytes]) -> Document | RejectedDocument:
    match = _DOC_TITLE.search(first.data.decode("utf-8", "replace"))
    title = html.unescape(match.group(1)) if match else ""
    try:
        body = [line.decode("utf-8").rstrip("\r\n") for line in lines]
    except UnicodeDecodeError as error:
        return RejectedDocument(title, f"{first.location()}: not UTF-8 ({error.reason})")
    if body and body[0].strip() == title.strip():  # the first line repeats the title, which is not a sentence
        del body[0]
    return Document(title, html.unescape("\n".join(body)))


def read_wikitext(part: Span | Chunk) -> Iterator[Document]:
    """Read WikiText-2 or WikiText-103, in which `` = Title = `` begins an article and `` @-@ `` is a hyphen."""
    title = ""
    lines: list[str] = []
    for line in _lines(part):
        text = line.decoded()
        heading = _WIKITEXT_TITLE.match(text)
        if heading:
            if lines:
                yield Document(title, "\n".join(lines))
            title, lines = heading.group(1), []
        elif text.strip() and not _WIKITEXT_HEADING.match(text):
            lines.append(re.sub(r" @(.)@ ", r"\1", text.strip()))
    if lines:
        yield Document(title, "\n".join(lines))
