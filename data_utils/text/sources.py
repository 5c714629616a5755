"""Sources of documents: a MediaWiki dump, text, JSON Lines, WikiExtractor's folders, WikiText, Parquet or the hub.

The main process asks a source for work units; the workers ask it for the documents of a unit, which distributes reading
and decompressing. An input that can only be read from its beginning is read by the main process, and the workers
get its parts.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from data_utils.completion_log import identify_files
from data_utils.hub_dataset import hub_stream
from data_utils.text.compressed import SUFFIXES, is_compressed
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
from data_utils.text.rows import check_parquet, read_document, read_hub, read_parquet
from data_utils.text.units import (
    Cut,
    CutBehind,
    Streamed,
    StreamedUnit,
    Unit,
    cut_anywhere,
    cut_nowhere,
    plan_input_units,
    read_chunks,
    streamed_units,
)
from utilities.errors import UserError
from utilities.files import replacing

LARGEST_UNIT = 4 << 20  # bytes on disk: seconds of work, and some ten megabytes of memory
SMALLEST_UNIT = 1 << 20
UNITS = 64  # minimum number of units of a large input
STANDARD_INPUT = Path("-")
COPY_BYTES = 1 << 20

DEFAULT_COLUMN, DEFAULT_SPLIT = "text", "train"
# The options that only one kind of input has, with their defaults.
OPTIONS_OF_INPUTS: dict[str, dict[str, Any]] = {
    "text": {"document_per_file": False, "join_lines": False},
    "jsonl": {"jsonl_field": DEFAULT_COLUMN},
    "parquet": {"parquet_column": DEFAULT_COLUMN},
    "hub_dataset": {"hub_config": None, "hub_split": DEFAULT_SPLIT, "hub_column": DEFAULT_COLUMN},
}

Documents = Iterator["Document | RejectedDocument"]


@dataclass(frozen=True)
class Source:
    """Documents that can be read several times. Picklable.

    Attributes:
        files: The input files, in order; empty if the input is not in files.
        read_part: Function that yields the documents of a part: a span of a file, or a part of the stream.
        kind: The format and its options, for the recipe.
        cut: Function that finds where files may be cut.
        stream: Function that yields the parts of an input that can only be read from its beginning; without it, files
            are cut into spans.
        is_markup: Whether texts are wiki markup that must be cleaned.
        hidden_namespaces: See ``clean_wikitext``.
    """

    files: tuple[Path, ...]
    read_part: Callable[[Any], Documents]
    kind: dict[str, Any]
    cut: Cut = cut_anywhere
    stream: Callable[[], Iterator[Streamed]] | None = None
    is_markup: bool = False
    hidden_namespaces: frozenset[str] = field(default_factory=frozenset)

    @property
    def total_bytes(self) -> int | None:
        """The size of the input on disk; None if that is not known."""
        return sum(path.stat().st_size for path in self.files) if self.files else None

    def identity(self) -> dict[str, Any]:
        """Return values that identify this input in the recipe."""
        return {**self.kind, **(identify_files(self.files) if self.files else {})}

    def for_workers(self) -> Source:
        """Return the source without what only the main process needs."""
        return replace(self, files=(), stream=None)

    def units(self) -> Iterator[Unit | StreamedUnit]:
        """Yield work units, whose bounds depend only on the input."""
        total = self.total_bytes
        unit_bytes = LARGEST_UNIT if total is None else min(LARGEST_UNIT, max(SMALLEST_UNIT, total // UNITS))
        if self.stream is not None:
            return streamed_units(self.stream(), unit_bytes)
        return plan_input_units(self.files, unit_bytes, self.cut)

    def documents(self, unit: Unit | StreamedUnit) -> Documents:
        """Yield the documents of a unit, and the parts that cannot be read as documents."""
        for part in unit.parts if isinstance(unit, StreamedUnit) else unit.spans:
            yield from self.read_part(part)

    def read(self) -> Documents:
        """Yield all documents in order."""
        for unit in self.units():
            yield from self.documents(unit)

    def paragraphs(self, document: Document) -> list[str]:
        """Return the document's paragraphs of prose."""
        if self.is_markup:
            return clean_wikitext(document.text, self.hidden_namespaces)
        return [line for line in map(str.strip, document.text.splitlines()) if line]


def dump_source(path: Path) -> Source:
    """Return the articles of a dump; reject a missing, foreign or truncated file before any work."""
    head = read_head(path)
    markup = Source((path,), read_chunk, {"kind": "dump"}, is_markup=True, hidden_namespaces=head.hidden_namespaces)
    if head.is_splittable:
        check_end(path)
        return markup
    return replace(markup, read_part=parse_page, stream=functools.partial(read_pages, path))


def _make_source(
    files: tuple[Path, ...], read_part: Callable[[Any], Documents], boundary: re.Pattern[bytes] | None, kind: dict
) -> Source:
    """Return the source of text files, which may be compressed and may be cut after ``boundary``; None: nowhere."""
    stream = functools.partial(read_chunks, files, boundary) if any(map(is_compressed, files)) else None
    return Source(files, read_part, kind, CutBehind(boundary) if boundary else cut_nowhere, stream)


def parts_folder(output: Path) -> Path:
    """Return the folder of unfinished work, which exists until the file ``output`` is complete."""
    return output.with_name(output.name + ".parts")


def _existing_files(options: argparse.Namespace, name: str, pattern: str = "*") -> tuple[Path, ...]:
    """Return the files that an option names, with each folder replaced by its sorted files, compressed ones included.

    What the command itself writes below such a folder is left out, so that it resumes with the same input.
    """
    option, output = f"--{name}", options.output.resolve()
    files: list[Path] = []
    for path in getattr(options, name):
        if path.is_dir():
            if path.resolve() == output:
                raise UserError(f"{option} {path}: is the output folder, whose files would be input; change --output")
            patterns = [pattern + suffix for suffix in ("", *SUFFIXES)] if pattern.startswith("*.") else [pattern]
            found = {entry for each in patterns for entry in path.rglob(each) if entry.is_file()}
            written = [each for each in (output, parts_folder(output)) if path.resolve() in each.parents]
            inside = sorted(entry for entry in found if not any(map(entry.resolve().is_relative_to, written)))
            if not inside:
                raise UserError(f"{option} {path}: the folder contains no files {pattern}")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            problem = "not a regular file; - is standard input" if path.exists() else "no such file or folder"
            raise UserError(f"{option} {path}: {problem}")
    return tuple(files)


def add_source_options(parser: argparse.ArgumentParser, sentences_too: bool = False) -> None:
    """Add the options that select the input; exactly one input is required."""
    group = parser.add_argument_group("input (one of)")
    inputs = group.add_mutually_exclusive_group(required=True)
    inputs.add_argument("--dump", type=Path, metavar="FILE", help="MediaWiki XML dump, plain, .bz2 or .gz")
    inputs.add_argument(
        "--text",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="UTF-8 text, blank line between documents, also .gz, .bz2, .xz and .zst; - for standard input",
    )
    inputs.add_argument(
        "--jsonl",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="JSON Lines, one document a line; compressed and - as for --text",
    )
    inputs.add_argument("--wikiextractor", type=Path, nargs="+", metavar="DIR", help="WikiExtractor's output")
    inputs.add_argument("--wikitext", type=Path, nargs="+", metavar="FILE", help="WikiText-2 or -103 files")
    inputs.add_argument("--parquet", type=Path, nargs="+", metavar="FILE", help="Parquet files, one document a row")
    inputs.add_argument("--hub-dataset", metavar="NAME", help="data set of the Hugging Face hub, one document a row")
    if sentences_too:
        inputs.add_argument("--sentences", type=Path, metavar="DIR", help="output of the sentences step")
    group.add_argument(
        "--jsonl-field",
        default=DEFAULT_COLUMN,
        metavar="NAME",
        help="field of --jsonl with the text (default %(default)s)",
    )
    group.add_argument(
        "--parquet-column",
        default=DEFAULT_COLUMN,
        metavar="NAME",
        help="column of --parquet with the text (default %(default)s)",
    )
    group.add_argument("--hub-config", metavar="NAME", help="--hub-dataset: its configuration (default: its own)")
    group.add_argument(
        "--hub-split", default=DEFAULT_SPLIT, metavar="NAME", help="--hub-dataset: its split (default %(default)s)"
    )
    group.add_argument(
        "--hub-column",
        default=DEFAULT_COLUMN,
        metavar="NAME",
        help="--hub-dataset: the column with the text (default %(default)s)",
    )
    group.add_argument("--document-per-file", action="store_true", help="--text: each file is one document")
    group.add_argument("--join-lines", action="store_true", help="--text: lines are wrapped, join them to paragraphs")


def source_from_options(options: argparse.Namespace) -> Source:
    """Return the source that the options of ``add_source_options`` describe, for the result ``options.output``.

    Raises:
        UserError: The input cannot be read, or an option is one of another kind of input.
    """
    for owner, defaults in OPTIONS_OF_INPUTS.items():
        changed = [name for name, default in defaults.items() if getattr(options, name) != default]
        if changed and not getattr(options, owner):
            option, other = (f"--{name.replace('_', '-')}" for name in (changed[0], owner))
            raise UserError(f"{option}: is an option of {other}, which is not the input; leave it out")
    if options.dump:
        return dump_source(options.dump)
    if options.text:
        text = PlainText(options.document_per_file, options.join_lines)
        files = _existing_files(options, "text", "*.txt")
        boundary = None if options.document_per_file else BLANK_LINE
        return _make_source(files, text, boundary, {"kind": "text", **asdict(text)})
    if options.jsonl:
        lines = JsonLines(options.jsonl_field)
        files = _existing_files(options, "jsonl", "*.jsonl")
        return _make_source(files, lines, LINE_END, {"kind": "jsonl", **asdict(lines)})
    if options.wikiextractor:
        files = _existing_files(options, "wikiextractor", "wiki_*")
        return _make_source(files, read_wikiextractor, WIKIEXTRACTOR_BOUNDARY, {"kind": "wikiextractor"})
    if options.wikitext:
        files = _existing_files(options, "wikitext")
        return _make_source(files, read_wikitext, WIKITEXT_BOUNDARY, {"kind": "wikitext"})
    if options.parquet:
        files, column = _existing_files(options, "parquet", "*.parquet"), options.parquet_column
        check_parquet(files, column)
        stream = functools.partial(read_parquet, files, column)
        return Source(files, read_document, {"kind": "parquet", "column": column}, stream=stream)
    hub = hub_stream(options.hub_dataset, options.hub_config, options.hub_split)
    stream = functools.partial(read_hub, hub, options.hub_column)
    kind = {"kind": "hub", "name": hub.name, "split": options.hub_split, "column": options.hub_column}
    return Source((), read_document, {**kind, "version": hub.version}, stream=stream)


@contextlib.contextmanager
def standard_input_copied(options: argparse.Namespace, folder: Path) -> Iterator[None]:
    """Copy standard input to a file, because sources are read in parts and more than once, and delete it at the end.

    The same command, run again with the same standard input, resumes like any other.

    Args:
        options: Their paths ``-`` are replaced by that of the copy.
        folder: Folder for the copy; it is created if standard input is read.
    """
    lists = [paths for paths in vars(options).values() if isinstance(paths, list) and STANDARD_INPUT in paths]
    copy = folder / "standard_input"
    if not lists:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(copy) as stream:
        shutil.copyfileobj(sys.stdin.buffer, stream, COPY_BYTES)
    for paths in lists:
        paths[:] = [copy if path == STANDARD_INPUT else path for path in paths]
    try:
        yield
    finally:
        copy.unlink(missing_ok=True)
