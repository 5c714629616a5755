"""Sources of documents: a MediaWiki dump, plain text, JSON Lines, WikiExtractor's folders, or WikiText.

The main process asks a source for work units; the workers ask it for the documents of a unit, which distributes reading
and decompressing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from data_utils.completion_log import identify_files
from data_utils.text.documents import (
    BLANK_LINE,
    LINE_END,
    WIKIEXTRACTOR_BOUNDARY,
    WIKITEXT_BOUNDARY,
    Document,
    JsonLines,
    PlainText,
    RejectedDocument,
    read_wikiextractor,
    read_wikitext,
)
from data_utils.text.dump import check_end, parse_page, read_chunk, read_head, read_pages
from data_utils.text.markup import clean_wikitext
from data_utils.text.units import Cut, CutBehind, Span, Unit, cut_anywhere, cut_nowhere, plan_input_units
from utilities.errors import UserError

LARGEST_UNIT = 4 << 20  # bytes on disk: seconds of work, and some ten megabytes of memory
SMALLEST_UNIT = 1 << 20
UNITS = 64  # minimum number of units of a large input

Documents = Iterator["Document | RejectedDocument"]


class PagesUnit(NamedTuple):
    """A work unit of a dump that can only be read from its beginning: the XML of its pages."""

    number: int
    pages: list[bytes]
    size: int  # bytes on disk that were read for it


@dataclass(frozen=True)
class Source:
    """Documents that can be read several times. A source can be sent to workers.

    Attributes:
        files: The input files, in order.
        read_span: Function that yields the documents that begin in a part of a file; None if files cannot be read in
            parts.
        cut: Function that finds where files may be cut.
        kind: The format and its options, for the recipe.
        is_markup: Whether texts are wiki markup that must be cleaned.
        hidden_namespaces: See ``clean_wikitext``.
    """

    files: tuple[Path, ...]
    read_span: Callable[[Span], Documents] | None
    cut: Cut
    kind: dict[str, Any]
    is_markup: bool = False
    hidden_namespaces: frozenset[str] = field(default_factory=frozenset)

    @property
    def total_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files)

    def identity(self) -> dict[str, Any]:
        """Return values that identify this input in the recipe."""
        return {**self.kind, **identify_files(self.files)}

    def for_workers(self) -> Source:
        """Return the source without its list of files, which workers do not need."""
        return replace(self, files=())

    def units(self) -> Iterator[Unit | PagesUnit]:
        """Yield work units, whose bounds depend only on the files."""
        unit_bytes = min(LARGEST_UNIT, max(SMALLEST_UNIT, self.total_bytes // UNITS))
        if self.read_span is None:
            return _page_units(self.files, unit_bytes)
        return plan_input_units(self.files, unit_bytes, self.cut)

    def documents(self, unit: Unit | PagesUnit) -> Documents:
        """Yield the documents of a unit, and the parts that cannot be read as documents."""
        if isinstance(unit, PagesUnit):
            for page in unit.pages:
                yield from parse_page(page)
            return
        assert self.read_span is not None, "only such sources give units of spans"
        for span in unit.spans:
            yield from self.read_span(span)

    def read(self) -> Documents:
        """Yield all documents in order."""
        for unit in self.units():
            yield from self.documents(unit)

    def paragraphs(self, document: Document) -> list[str]:
        """Return the document's paragraphs of prose."""
        if self.is_markup:
            return clean_wikitext(document.text, self.hidden_namespaces)
        return [line for line in map(str.strip, document.text.splitlines()) if line]


def _page_units(files: Iterable[Path], unit_bytes: int) -> Iterator[PagesUnit]:
    number, pages, length, size = 0, [], 0, 0
    for path in files:
        for page, bytes_read in read_pages(path):
            pages.append(page)
            length += len(page)
            size += bytes_read
            if length >= unit_bytes:
                yield PagesUnit(number, pages, size)
                number, pages, length, size = number + 1, [], 0, 0
    yield PagesUnit(number, pages, size)


def dump_source(path: Path) -> Source:
    """Return the articles of a dump; reject a missing, foreign or truncated file before any work."""
    head = read_head(path)
    if head.can_be_cut:
        check_end(path)
    read_span = read_chunk if head.can_be_cut else None
    return Source((path,), read_span, cut_anywhere, {"kind": "dump"}, True, head.hidden_namespaces)


def _existing_files(paths: Iterable[Path], option: str, pattern: str = "*") -> tuple[Path, ...]:
    """Return the given files, with each folder replaced by its sorted files."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(entry for entry in path.rglob(pattern) if entry.is_file())
            if not inside:
                raise UserError(f"{option} {path}: the folder contains no files {pattern}")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise UserError(f"{option} {path}: no such file or folder")
    return tuple(files)


def add_source_options(parser: argparse.ArgumentParser, sentences_too: bool = False) -> None:
    """Add the options that select the input; exactly one input is required."""
    group = parser.add_argument_group("input (one of)")
    inputs = group.add_mutually_exclusive_group(required=True)
    inputs.add_argument("--dump", type=Path, metavar="FILE", help="MediaWiki XML dump, plain, .bz2 or .gz")
    inputs.add_argument("--text", type=Path, nargs="+", metavar="FILE", help="UTF-8 text, blank line between documents")
    inputs.add_argument("--jsonl", type=Path, nargs="+", metavar="FILE", help="JSON Lines, one document a line")
    inputs.add_argument("--wikiextractor", type=Path, nargs="+", metavar="DIR", help="WikiExtractor's output")
    inputs.add_argument("--wikitext", type=Path, nargs="+", metavar="FILE", help="WikiText-2 or -103 files")
    if sentences_too:
        inputs.add_argument("--sentences", type=Path, metavar="DIR", help="output of the sentences step")
    group.add_argument(
        "--jsonl-field",
        default="text",
        metavar="NAME",
        help="field of --jsonl with the text (default %(default)s)",
    )
    group.add_argument("--document-per-file", action="store_true", help="--text: each file is one document")
    group.add_argument("--join-lines", action="store_true", help="--text: lines are wrapped, join them to paragraphs")


def source_from_options(options: argparse.Namespace) -> Source:
    """Return the source that the options of ``add_source_options`` describe."""
    if options.dump:
        return dump_source(options.dump)
    if options.text:
        text = PlainText(options.document_per_file, options.join_lines)
        cut = cut_nowhere if options.document_per_file else CutBehind(BLANK_LINE)
        return Source(_existing_files(options.text, "--text", "*.txt"), text, cut, {"kind": "text", **asdict(text)})
    if options.jsonl:
        lines = JsonLines(options.jsonl_field)
        files = _existing_files(options.jsonl, "--jsonl", "*.jsonl")
        return Source(files, lines, CutBehind(LINE_END), {"kind": "jsonl", **asdict(lines)})
    if options.wikiextractor:
        files = _existing_files(options.wikiextractor, "--wikiextractor", "wiki_*")
        return Source(files, read_wikiextractor, CutBehind(WIKIEXTRACTOR_BOUNDARY), {"kind": "wikiextractor"})
    files = _existing_files(options.wikitext, "--wikitext")
    return Source(files, read_wikitext, CutBehind(WIKITEXT_BOUNDARY), {"kind": "wikitext"})
