"""Text formats other than dumps: the documents that begin in a part of a file.

A part begins where a document begins: the patterns here say where files may be cut.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from data_utils.text.set_aside import SetAside
from data_utils.text.units import Span
from utilities.errors import UserError

LINE_END = re.compile(rb"\n")
BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")
BOUNDARY_OF_WIKIEXTRACTOR = re.compile(rb"\n(?=<doc )")
BOUNDARY_OF_WIKITEXT = re.compile(rb"\n(?=[ \t]*= [^=\n][^\n]* =[ \t\r]*\n)")

_DOC_TITLE = re.compile(r'\btitle="([^"]*)"')
_WIKITEXT_TITLE = re.compile(r"^\s*= ([^=].*?) =\s*$")
_WIKITEXT_HEADING = re.compile(r"^\s*=( =)+ .* =( =)+\s*$")


class Document(NamedTuple):
    """One document: a title (may be empty) and its text, paragraphs on lines of their own."""

    title: str
    text: str


class _Line(NamedTuple):
    """A line without its end, and where it begins in its file."""

    offset: int
    data: bytes


def _lines(span: Span) -> Iterator[_Line]:
    with open(span.path, "rb") as stream:
        stream.seek(span.start)
        offset = span.start
        while offset < span.end:
            line = stream.readline()
            yield _Line(offset, line.removeprefix(b"\xef\xbb\xbf") if offset == 0 else line)
            offset += len(line)


def _decoded(span: Span, line: _Line) -> str:
    try:
        return line.data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{_place(span, line)}: not UTF-8 ({error.reason}); convert the file") from error


def _place(span: Span, line: _Line) -> str:
    """File and number of a line, counted only when something is wrong with it."""
    return f"{span.path}, line {_line_number(span.path, line.offset)}"


def _line_number(path: Path, offset: int) -> int:
    count, left = 1, offset
    with open(path, "rb") as stream:
        while left and (block := stream.read(min(left, 1 << 20))):
            count += block.count(b"\n")
            left -= len(block)
    return count


class PlainText(NamedTuple):
    """Reads UTF-8 text, a blank line between documents.

    Attributes:
        whole_file: each file is one document.
        join_lines: lines are wrapped: join them to paragraphs.
    """

    whole_file: bool
    join_lines: bool

    def __call__(self, span: Span) -> Iterator[Document]:
        glue = " " if self.join_lines else "\n"
        lines: list[str] = []
        for line in _lines(span):
            text = _decoded(span, line)
            if text.strip():
                lines.append(text)
            elif lines and not self.whole_file:
                yield Document("", glue.join(lines))
                lines = []
            elif lines and self.join_lines:
                lines.append("\n")  # a blank line still ends a paragraph
        if lines:
            yield Document(span.path.name if self.whole_file else "", glue.join(lines))


class JsonLines(NamedTuple):
    """Reads JSON Lines, one document a line.

    Attributes:
        field: that holds the text.
    """

    field: str

    def __call__(self, span: Span) -> Iterator[Document | SetAside]:
        for line in _lines(span):
            text = line.data.strip()
            if not text:
                continue
            try:
                record = json.loads(text)
            except json.JSONDecodeError as error:
                reason = f"not JSON ({error.msg} at column {error.colno})"
                yield SetAside("", f"{_place(span, line)}: {reason}")
                continue
            except UnicodeDecodeError as error:
                yield SetAside("", f"{_place(span, line)}: not UTF-8 ({error.reason})")
                continue
            if isinstance(record, dict) and isinstance(record.get(self.field), str):
                yield Document(str(record.get("title", "")), record[self.field])
                continue
            known = f"it has {', '.join(map(str, record))}" if isinstance(record, dict) else "not an object"
            reason = f"no text in field {self.field!r} ({known}); see --jsonl-field"
            yield SetAside("", f"{_place(span, line)}: {reason}")


def read_wikiextractor(span: Span) -> Iterator[Document | SetAside]:
    """Reads WikiExtractor's ``<doc …>`` to ``</doc>``."""
    begin: _Line | None = None
    lines: list[bytes] = []
    found = False
    for line in _lines(span):
        if line.data.startswith(b"<doc ") and line.data.rstrip().endswith(b">"):
            begin, lines, found = line, [], True
        elif line.data.startswith(b"</doc>") and begin is not None:
            yield _extracted(span, begin, lines)
            begin = None
        elif begin is not None:
            lines.append(line.data)
    if begin is not None or not found:
        reason = "ends within a document" if found else "holds no <doc …> line"
        raise UserError(f"{span.path}: not WikiExtractor's output: the file {reason}")


def _extracted(span: Span, begin: _Line, lines: list[bytes]) -> Document | SetAside:
    found = _DOC_TITLE.search(begin.data.decode("utf-8", "replace"))
    title = html.unescape(found.group(1)) if found else ""
    try:
        body = [line.decode("utf-8").rstrip("\r\n") for line in lines]
    except UnicodeDecodeError as error:
        return SetAside(title, f"{_place(span, begin)}: not UTF-8 ({error.reason})")
    # The first line repeats the title: a heading, not a sentence.
    if body and body[0].strip() == title.strip():
        del body[0]
    return Document(title, html.unescape("\n".join(body)))


def read_wikitext(span: Span) -> Iterator[Document]:
    """WikiText-2 and WikiText-103: `` = Title = `` begins an article, `` @-@ `` is a hyphen."""
    title, lines = "", []
    for line in _lines(span):
        text = _decoded(span, line)
        heading = _WIKITEXT_TITLE.match(text)
        if heading:
            if lines:
                yield Document(title, "\n".join(lines))
            title, lines = heading.group(1), []
        elif text.strip() and not _WIKITEXT_HEADING.match(text):
            lines.append(re.sub(r" @(.)@ ", r"\1", text.strip()))
    if lines:
        yield Document(title, "\n".join(lines))
