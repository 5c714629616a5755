"""Sources of documents: a MediaWiki dump, text, JSON Lines, WikiExtractor's folders, WikiText, Parquet or the hub.

The main process reads the documents, in order, and sends them to the workers in shards.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from data_utils.command_line import natural
from data_utils.hub_dataset import hub_stream
from data_utils.recipe import identify_files
from data_utils.records.manifest import WORK_FOLDER
from data_utils.shards import Shard
from data_utils.text.compressed import SUFFIXES
from data_utils.text.dump import COPY_BYTES, check_dump, read_dump
from data_utils.text.readers import (
    Document,
    Documents,
    Positioned,
    RejectedDocument,
    check_parquet,
    read_files,
    read_hub,
    read_json_lines,
    read_parquet,
    read_text,
    read_wikiextractor,
    read_wikitext,
)
from utilities.errors import UserError
from utilities.files import only_command_in, replacing

LARGEST_SHARD = 4 << 20  # characters of text: seconds of work, and some ten megabytes of memory
SMALLEST_SHARD = 1 << 20
SHARDS = 64  # minimum number of shards of a large input
STANDARD_INPUT = Path("-")
DEFAULT_MIN_CHARACTERS = 100
NO_TEXT = re.compile(r"\.(?:jsonl|ndjson|json|parquet|csv|tsv)(?:\.\w+)?$")  # names of files that --text would misread
JSON_LINES = ("*.jsonl", "*.ndjson", "*.json", "wiki_*", "part-*")  # the last two are WikiExtractor's and Spark's

DEFAULT_COLUMN, DEFAULT_SPLIT = "text", "train"
# The options that only one kind of input has, with their defaults.
OPTIONS_OF_INPUTS: dict[str, dict[str, Any]] = {
    "text": {"document_per_file": False, "document_per_line": False, "join_lines": False},
    "jsonl": {"jsonl_field": DEFAULT_COLUMN},
    "parquet": {"parquet_column": DEFAULT_COLUMN},
    "hub_dataset": {"hub_config": None, "hub_split": DEFAULT_SPLIT, "hub_column": DEFAULT_COLUMN},
}


@dataclass(frozen=True)
class Source:
    """Documents that can be read several times."""

    files: tuple[Path, ...]  # empty if the input is not in files
    read: Callable[[], Positioned]  # all documents, in order
    kind: dict[str, Any]  # the format and its options, for the recipe
    total_bytes: int | None = None  # what ``read`` counts to, if that is known

    def identity(self) -> dict[str, Any]:
        """Return values that identify this input in the recipe."""
        return {**self.kind, **(identify_files(self.files) if self.files else {})}

    def documents(self) -> Iterator[Document | RejectedDocument]:
        """Yield all documents in order, and those that cannot be read."""
        return (document for document, _ in self.read())

    def shards(self) -> Iterator[Shard]:
        """Yield all documents in order, in shards whose bounds depend only on the input."""
        most = LARGEST_SHARD if self.total_bytes is None else self.total_bytes // SHARDS
        limit = min(LARGEST_SHARD, max(SMALLEST_SHARD, most))
        number = length = before = position = 0
        documents: list[Document | RejectedDocument] = []
        for document, position in self.read():
            documents.append(document)
            length += len(document[1])  # of the text, or the reason
            if length >= limit:
                yield Shard(number, documents, position - before)
                number, length, before, documents = number + 1, 0, position, []
        if documents:
            yield Shard(number, documents, position - before)


def share_of(source: Source, share: float) -> Source:
    """Return a source of a share of the documents, evenly spread over the input."""
    if share == 1:
        return source
    if share == 0:
        raise UserError("--documents-share 0: reads no document; give a number above 0")

    def spread() -> Positioned:
        for number, positioned in enumerate(source.read(), start=1):
            if int(number * share) > int((number - 1) * share):
                yield positioned

    return replace(source, read=spread, kind={**source.kind, "documents_share": share})


def _of_files(
    options: argparse.Namespace, kind: str, patterns: Sequence[str], reader: Callable[..., Documents], **settings: Any
) -> Source:
    """Return the documents that a reader finds in the files of an option, with the ``settings`` of the reader."""
    files = _existing_files(options, kind, patterns)
    total = sum(path.stat().st_size for path in files)
    read = functools.partial(read_files, files, functools.partial(reader, **settings))
    return Source(files, read, {"kind": kind, **settings}, total)


def _existing_files(options: argparse.Namespace, name: str, patterns: Sequence[str]) -> tuple[Path, ...]:
    """Return the files that an option names, those of a folder by the first pattern that any has, sorted. What the
    command itself writes below such a folder is left out, so that it resumes with the same input.
    """
    option, output = f"--{name}", options.output.resolve()
    files: list[Path] = []
    for path in getattr(options, name):
        if path.is_dir():
            if path.resolve() == output:
                raise UserError(f"{option} {path}: is the output folder, whose files would be input; change --output")
            found = ((_files_inside(path, pattern, output), pattern) for pattern in patterns)
            inside, named = next((each for each in found if each[0]), ([], ""))
            if not inside:
                raise UserError(
                    f"{option} {path}: the folder contains no files {' or '.join(patterns)}; name its files"
                )
            files += inside
            others = len(_files_inside(path, "*", output)) - len(inside)
            if others:
                print(f"{option} {path}: {others:,} files with other names than {named} are left out", file=sys.stderr)
        elif path.is_file():
            files.append(path)
        else:
            problem = "not a regular file; - is standard input" if path.exists() else "no such file or folder"
            raise UserError(f"{option} {path}: {problem}")
    return tuple(files)


def _files_inside(folder: Path, pattern: str, output: Path) -> list[Path]:
    """Return the sorted files of a folder, outside of the output folder, whose names follow a pattern in any case."""
    patterns = [pattern + suffix for suffix in ("", *SUFFIXES)] if pattern.startswith("*.") else [pattern]
    entries = [entry for entry in folder.rglob("*") if any(fnmatchcase(entry.name.lower(), each) for each in patterns)]
    is_inside = folder.resolve() in output.parents
    files = [entry for entry in entries if entry.is_file()]
    return sorted(each for each in files if not (is_inside and each.resolve().is_relative_to(output)))


def add_source_options(parser: argparse.ArgumentParser, sentences_too: bool = False) -> None:
    """Add the options that select the input; exactly one input is required."""
    group = parser.add_argument_group("input (one of)")
    inputs = group.add_mutually_exclusive_group(required=True)
    dump = "MediaWiki XML dump, plain, .bz2 or .gz; WikiExtractor reads it, which must be installed"
    inputs.add_argument("--dump", type=Path, metavar="FILE", help=dump)
    files = {
        "--text": "UTF-8 text, blank line between documents, also .gz, .bz2, .xz and .zst; - for standard input",
        "--jsonl": "JSON Lines or folders of them, one document a line; compressed and - as for --text",
        "--wikiextractor": "WikiExtractor's output, also its --json",
        "--wikitext": "WikiText-2 or -103 files",
        "--parquet": "Parquet files, one document a row",
    }
    for name, what in files.items():
        metavar = "DIR" if name == "--wikiextractor" else "FILE"
        inputs.add_argument(name, type=Path, nargs="+", metavar=metavar, help=what)
    inputs.add_argument("--hub-dataset", metavar="NAME", help="data set of the Hugging Face hub, one document a row")
    if sentences_too:
        inputs.add_argument("--sentences", type=Path, metavar="DIR", help="output of the sentences step")
    names = {
        "--jsonl-field": "field of --jsonl with the text (default %(default)s)",
        "--parquet-column": "column of --parquet with the text (default %(default)s)",
        "--hub-config": "--hub-dataset: its configuration (default: its own)",
        "--hub-split": "--hub-dataset: its split (default %(default)s)",
        "--hub-column": "--hub-dataset: the column with the text (default %(default)s)",
    }
    for name, what in names.items():
        group.add_argument(name, metavar="NAME", help=what)
    group.add_argument("--document-per-file", action="store_true", help="--text: each file is one document")
    group.add_argument("--document-per-line", action="store_true", help="--text: each line is one document")
    group.add_argument("--join-lines", action="store_true", help="--text: lines are wrapped, join them to paragraphs")
    parser.set_defaults(**{name: value for each in OPTIONS_OF_INPUTS.values() for name, value in each.items()})
    group.add_argument(
        "--min-characters", type=natural, default=DEFAULT_MIN_CHARACTERS, metavar="N",
        help="shorter documents are left out (default %(default)s)",
    )  # fmt: skip


def refuse_options(options: argparse.Namespace, defaults: Mapping[str, Any], reason: str) -> None:
    """Refuse options, by names and defaults, that have no effect; the reason says why, and what to do."""
    for name, default in defaults.items():
        if getattr(options, name) != default:
            raise UserError(f"--{name.replace('_', '-')}: {reason}")


def source_from_options(options: argparse.Namespace, folder: Path) -> Source:
    """Return the source that the options of ``add_source_options`` describe, and refuse those of other kinds of input.

    The options also have ``output``, whose files are no input, and ``workers``; a dump's articles are written to the
    work folder of ``folder``.
    """
    for owner, defaults in OPTIONS_OF_INPUTS.items():
        if not getattr(options, owner):
            other = f"--{owner.replace('_', '-')}"
            refuse_options(options, defaults, f"is an option of {other}, which is not the input; leave it out")
    if options.dump:
        check_dump(options.dump)
        read = functools.partial(read_dump, options.dump, folder / WORK_FOLDER, options.workers)
        return Source((options.dump,), read, {"kind": "dump"})
    if options.text:
        table = next((path for path in options.text if NO_TEXT.search(path.name.lower())), None)
        if table is not None:
            raise UserError(f"--text {table}: is a table by its name; give its texts to --jsonl or --parquet")
        settings = {"whole_file": options.document_per_file, "join_lines": options.join_lines}
        if options.document_per_line:
            others = {"document_per_file": False, "join_lines": False}
            refuse_options(options, others, "--document-per-line makes each line a document; leave one of them out")
            settings["per_line"] = True  # unset, the recipe is that of earlier versions
        return _of_files(options, "text", ["*.txt"], read_text, **settings)
    if options.jsonl:
        return _of_files(options, "jsonl", JSON_LINES, read_json_lines, field=options.jsonl_field)
    if options.wikiextractor:
        return _of_files(options, "wikiextractor", ["wiki_*"], read_wikiextractor)
    if options.wikitext:
        return _of_files(options, "wikitext", ["*"], read_wikitext)
    if options.parquet:
        files, column = _existing_files(options, "parquet", ["*.parquet"]), options.parquet_column
        check_parquet(files, column)
        total, read = sum(path.stat().st_size for path in files), functools.partial(read_parquet, files, column)
        return Source(files, read, {"kind": "parquet", "column": column}, total)
    hub = hub_stream(options.hub_dataset, options.hub_config, options.hub_split)
    kind = {"kind": "hub", "name": hub.name, "split": options.hub_split, "column": options.hub_column}
    return Source((), functools.partial(read_hub, hub, options.hub_column), {**kind, "version": hub.version})


@contextlib.contextmanager
def standard_input_copied(options: argparse.Namespace, folder: Path) -> Iterator[None]:
    """Copy standard input to a file, because sources are read more than once, and delete it at the end.

    The paths ``-`` of the options become that of the copy. The same command, run again with the same standard input,
    resumes like any other.
    """
    lists = [paths for paths in vars(options).values() if isinstance(paths, list) and STANDARD_INPUT in paths]
    copy = folder / "standard_input"
    if not lists:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with only_command_in(folder), replacing(copy) as stream:  # another one has its own copy there
        shutil.copyfileobj(sys.stdin.buffer, stream, COPY_BYTES)
    for paths in lists:
        paths[:] = [copy if path == STANDARD_INPUT else path for path in paths]
    try:
        yield
    finally:
        copy.unlink(missing_ok=True)
