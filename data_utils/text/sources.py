"""Where documents come from: a MediaWiki dump, plain text, JSON Lines, WikiExtractor's folders, WikiText.

A source gives work units, and the documents of a unit: the first where the run is directed, the second in the workers,
so that reading and decompressing are spread as well.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from data_utils.text.dump import can_be_cut, read_articles, read_namespaces
from data_utils.text.formats import (
    BLANK_LINE,
    BOUNDARY_OF_WIKIEXTRACTOR,
    BOUNDARY_OF_WIKITEXT,
    LINE_END,
    Document,
    JsonLines,
    PlainText,
    read_wikiextractor,
    read_wikitext,
)
from data_utils.text.markup import clean_wikitext
from data_utils.text.pages import check_end, read_stretch
from data_utils.text.recipe import identity_of
from data_utils.text.set_aside import SetAside
from data_utils.text.units import Cut, CutBehind, Span, Unit, cut_anywhere, cut_nowhere, plan_input_units
from utilities.errors import UserError

LARGEST_UNIT = 4 << 20  # bytes on disk: seconds of work, and some ten megabytes of memory
SMALLEST_UNIT = 1 << 20
UNITS = 64  # an input that is large enough is cut into so many at least

Found = Iterator["Document | SetAside"]


class Loaded(NamedTuple):
    """A work unit of an input that can only be read from its begin: the documents themselves.

    Attributes:
        size: bytes of input that were read for it.
    """

    number: int
    documents: list[Document]
    size: int


@dataclass(frozen=True)
class Source:
    """Documents to be read, once or several times. Can be sent to workers.

    Attributes:
        files: in order.
        read_span: gives the documents that begin in a part of a file; None where a file cannot be read in parts.
        cut: where files may be cut.
        kind: the format and its options, for the recipe.
        is_markup: whether texts are wiki markup, still to be cleaned.
        hidden_namespaces: see ``clean_wikitext``.
    """

    files: tuple[Path, ...]
    read_span: Callable[[Span], Found] | None
    cut: Cut
    kind: dict[str, Any]
    is_markup: bool = False
    hidden_namespaces: frozenset[str] = field(default_factory=frozenset)

    @property
    def total_bytes(self) -> int:
        """Bytes of the files, as they lie on disk."""
        return sum(path.stat().st_size for path in self.files)

    def identity(self) -> dict[str, Any]:
        """What tells this input from others; for the recipe."""
        return {**self.kind, **identity_of(self.files)}

    def for_workers(self) -> Source:
        """What workers need of it, which is small: no list of files."""
        return replace(self, files=())

    def units(self) -> Iterator[Unit | Loaded]:
        """Work units; their bounds follow from the files alone."""
        unit_bytes = min(LARGEST_UNIT, max(SMALLEST_UNIT, self.total_bytes // UNITS))
        if self.read_span is None:
            return _loaded_units(self.files, unit_bytes)
        return plan_input_units(self.files, unit_bytes, self.cut)

    def documents(self, unit: Unit | Loaded) -> Found:
        """The documents of a unit, and what cannot be read as one."""
        if isinstance(unit, Loaded):
            yield from unit.documents
            return
        assert self.read_span is not None, "only such sources give units of spans"
        for span in unit.spans:
            yield from self.read_span(span)

    def read(self) -> Found:
        """All documents in order."""
        for unit in self.units():
            yield from self.documents(unit)

    def paragraphs(self, document: Document) -> list[str]:
        """The document's prose, one paragraph an entry."""
        if self.is_markup:
            return clean_wikitext(document.text, self.hidden_namespaces)
        return [line for line in map(str.strip, document.text.splitlines()) if line]


def _loaded_units(files: Iterable[Path], unit_bytes: int) -> Iterator[Loaded]:
    number, documents, length, size = 0, [], 0, 0

    def on_bytes(amount: int) -> None:
        nonlocal size
        size += amount

    for path in files:
        for article in read_articles(path, on_bytes):
            documents.append(Document(article.title, article.wikitext))
            length += len(article.wikitext)
            if length >= unit_bytes:
                yield Loaded(number, documents, size)
                number, documents, length, size = number + 1, [], 0, 0
    yield Loaded(number, documents, size)


def _read_dump(span: Span) -> Found:
    for article in read_stretch(*span):
        yield article if isinstance(article, SetAside) else Document(article.title, article.wikitext)


def dump_source(path: Path) -> Source:
    """Articles of a pages-articles dump; missing or foreign files are refused here, before any work."""
    names = read_namespaces(path)
    hidden = frozenset(names[key] for key in ("-2", "6", "14") if key in names)
    if can_be_cut(path):
        check_end(path)
        read_span = _read_dump
    else:
        read_span = None
    return Source((path,), read_span, cut_anywhere, {"kind": "dump"}, True, hidden)


def _existing_files(paths: Iterable[Path], option: str, pattern: str = "*") -> tuple[Path, ...]:
    """Files as given, folders as the sorted files in them."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(entry for entry in path.rglob(pattern) if entry.is_file())
            if not inside:
                raise UserError(f"{option} {path}: the folder holds no files {pattern}")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise UserError(f"{option} {path}: no such file or folder")
    return tuple(files)


def add_source_options(parser: argparse.ArgumentParser, sentences_too: bool = False) -> None:
    """The options that say what to read; exactly one of the inputs is required."""
    group = parser.add_argument_group("input (one of)")
    inputs = group.add_mutually_exclusive_group(required=True)
    inputs.add_argument("--dump", type=Path, metavar="FILE", help="MediaWiki XML dump, plain, .bz2 or .gz")
    inputs.add_argument("--text", type=Path, nargs="+", metavar="FILE", help="UTF-8 text, blank line between documents")
    inputs.add_argument("--jsonl", type=Path, nargs="+", metavar="FILE", help="JSON Lines, one document a line")
    inputs.add_argument("--wikiextractor", type=Path, nargs="+", metavar="DIR", help="WikiExtractor's output")
    inputs.add_argument("--wikitext", type=Path, nargs="+", metavar="FILE", help="WikiText-2 or -103 files")
    if sentences_too:
        inputs.add_argument("--sentences", type=Path, metavar="DIR", help="what the sentences step wrote")
    group.add_argument(
        "--jsonl-field",
        default="text",
        metavar="NAME",
        help="field of --jsonl that holds the text (default %(default)s)",
    )
    group.add_argument("--document-per-file", action="store_true", help="--text: each file is one document")
    group.add_argument("--join-lines", action="store_true", help="--text: lines are wrapped, join them to paragraphs")


def source_of(options: argparse.Namespace) -> Source:
    """The source that the options of ``add_source_options`` describe."""
    if options.dump:
        return dump_source(options.dump)
    if options.text:
        reader = PlainText(options.document_per_file, options.join_lines)
        cut = cut_nowhere if options.document_per_file else CutBehind(BLANK_LINE)
        files = _existing_files(options.text, "--text", "*.txt")
        return Source(files, reader, cut, {"kind": "text", **reader._asdict()})
    if options.jsonl:
        reader = JsonLines(options.jsonl_field)
        files = _existing_files(options.jsonl, "--jsonl", "*.jsonl")
        return Source(files, reader, CutBehind(LINE_END), {"kind": "jsonl", **reader._asdict()})
    if options.wikiextractor:
        files = _existing_files(options.wikiextractor, "--wikiextractor", "wiki_*")
        return Source(files, read_wikiextractor, CutBehind(BOUNDARY_OF_WIKIEXTRACTOR), {"kind": "wikiextractor"})
    files = _existing_files(options.wikitext, "--wikitext")
    return Source(files, read_wikitext, CutBehind(BOUNDARY_OF_WIKITEXT), {"kind": "wikitext"})
