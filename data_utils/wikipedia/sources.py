"""Where documents come from: a MediaWiki dump, plain text, JSON Lines, WikiExtractor's folders, WikiText."""

from __future__ import annotations

import argparse
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from data_utils.wikipedia.dump import read_articles, read_namespaces
from data_utils.wikipedia.markup import clean_wikitext
from utilities.errors import UserError

OnBytes = Callable[[int], None]
_DOC_TITLE = re.compile(r'\btitle="([^"]*)"')
_WIKITEXT_TITLE = re.compile(r"^\s*= ([^=].*?) =\s*$")
_WIKITEXT_HEADING = re.compile(r"^\s*=( =)+ .* =( =)+\s*$")


class Document(NamedTuple):
    """One document: a title (may be empty) and its text, paragraphs on lines of their own."""

    title: str
    text: str


@dataclass(frozen=True)
class Source:
    """Documents to be read, once or several times.

    Attributes:
        read: gives the documents in order; its argument is told the bytes read, for progress.
        total_bytes: of the files, as they lie on disk.
        is_markup: whether texts are wiki markup, still to be cleaned (done in the workers: it is the slow
        part). hidden_namespaces: see ``clean_wikitext``.
    """

    read: Callable[[OnBytes], Iterator[Document]]
    total_bytes: int
    is_markup: bool = False
    hidden_namespaces: frozenset[str] = field(default_factory=frozenset)

    def paragraphs(self, document: Document) -> list[str]:
        """The document's prose, one paragraph an entry."""
        if self.is_markup:
            return clean_wikitext(document.text, self.hidden_namespaces)
        return [line for line in map(str.strip, document.text.splitlines()) if line]


def dump_source(path: Path) -> Source:
    """Articles of a pages-articles dump; missing or foreign files are refused here, before any work."""
    names = read_namespaces(path)
    hidden = frozenset(names[key] for key in ("-2", "6", "14") if key in names)

    def read(on_bytes: OnBytes) -> Iterator[Document]:
        for article in read_articles(path, on_bytes):
            yield Document(article.title, article.wikitext)

    return Source(read, path.stat().st_size, is_markup=True, hidden_namespaces=hidden)


def _lines(path: Path, on_bytes: OnBytes) -> Iterator[str]:
    """Lines of a UTF-8 file, without their ends."""
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            on_bytes(len(line))
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise UserError(f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file") from error


def _read_text(path: Path, on_bytes: OnBytes, whole_file: bool, join_lines: bool) -> Iterator[Document]:
    glue = " " if join_lines else "\n"
    lines: list[str] = []
    for line in _lines(path, on_bytes):
        if line.strip():
            lines.append(line)
        elif lines and not whole_file:
            yield Document("", glue.join(lines))
            lines = []
        elif lines and join_lines:
            lines.append("\n")  # a blank line still ends a paragraph
    if lines:
        yield Document(path.name if whole_file else "", glue.join(lines))


def _read_json_lines(path: Path, on_bytes: OnBytes, name: str) -> Iterator[Document]:
    for number, line in enumerate(_lines(path, on_bytes), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {number}: not JSON ({error.msg} at column {error.colno})") from error
        if not isinstance(record, dict) or not isinstance(record.get(name), str):
            known = f"it has {', '.join(map(str, record))}" if isinstance(record, dict) else "not an object"
            raise UserError(f"{path}, line {number}: no text in field {name!r} ({known}); see --jsonl-field")
        yield Document(str(record.get("title", "")), record[name])


def _read_wikiextractor(path: Path, on_bytes: OnBytes) -> Iterator[Document]:
    title, lines, inside, found = "", [], False, False
    for line in _lines(path, on_bytes):
        if line.startswith("<doc ") and line.rstrip().endswith(">"):
            match = _DOC_TITLE.search(line)
            title, lines, inside, found = html.unescape(match.group(1)) if match else "", [], True, True
        elif line.startswith("</doc>"):
            # The first line repeats the title: a heading, not a sentence.
            body = lines[1:] if lines and lines[0].strip() == title.strip() else lines
            yield Document(title, html.unescape("\n".join(body)))
            inside = False
        elif inside:
            lines.append(line)
    if inside or not found:
        reason = "ends within a document" if inside else "holds no <doc …> line"
        raise UserError(f"{path}: not WikiExtractor's output: the file {reason}")


def _read_wikitext(path: Path, on_bytes: OnBytes) -> Iterator[Document]:
    """WikiText-2 and WikiText-103: `` = Title = `` begins an article, `` @-@ `` is a hyphen."""
    title, lines = "", []
    for line in _lines(path, on_bytes):
        heading = _WIKITEXT_TITLE.match(line)
        if heading:
            if lines:
                yield Document(title, "\n".join(lines))
            title, lines = heading.group(1), []
        elif line.strip() and not _WIKITEXT_HEADING.match(line):
            lines.append(re.sub(r" @(.)@ ", r"\1", line.strip()))
    if lines:
        yield Document(title, "\n".join(lines))


def _files_source(paths: Iterable[Path], read_one: Callable[[Path, OnBytes], Iterator[Document]]) -> Source:
    files = list(paths)

    def read(on_bytes: OnBytes) -> Iterator[Document]:
        for path in files:
            yield from read_one(path, on_bytes)

    return Source(read, sum(path.stat().st_size for path in files))


def _existing_files(paths: Iterable[Path], option: str, pattern: str = "*") -> list[Path]:
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
    return files


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
        whole, join = options.document_per_file, options.join_lines
        files = _existing_files(options.text, "--text", "*.txt")
        return _files_source(files, lambda path, on_bytes: _read_text(path, on_bytes, whole, join))
    if options.jsonl:
        files = _existing_files(options.jsonl, "--jsonl", "*.jsonl")
        return _files_source(files, lambda path, on_bytes: _read_json_lines(path, on_bytes, options.jsonl_field))
    if options.wikiextractor:
        return _files_source(_existing_files(options.wikiextractor, "--wikiextractor", "wiki_*"), _read_wikiextractor)
    return _files_source(_existing_files(options.wikitext, "--wikitext"), _read_wikitext)
