"""Step ``extract``: a dump, or any other input, as JSON Lines of clean prose.

Each line is ``{"title": …, "text": …}``, paragraphs separated by a newline. The whole command line
``python -m data_utils.wikipedia`` does this on the way to sentences and writes no such file; this step is
for a look at the text, or for other uses of it.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from data_utils.wikipedia.command_line import Progress, make_parser, positive, run_main
from data_utils.wikipedia.parallel import available_cores, ordered_map
from data_utils.wikipedia.sources import Document, Source, add_source_options, source_of
from utilities.errors import UserError

BATCH_BYTES = 1 << 20  # of text given to a worker at a time: large beside the cost of handing it over
DEFAULT_MIN_CHARACTERS = 100


class Batch(NamedTuple):
    """Documents for one worker, and the bytes of input they were read from."""

    documents: list[Document]
    bytes_read: int


def batches(source: Source) -> Iterator[Batch]:
    """The source's documents in order, about a megabyte at a time; bounds follow from the text alone."""
    documents: list[Document] = []
    size = bytes_read = 0

    def on_bytes(amount: int) -> None:
        nonlocal bytes_read
        bytes_read += amount

    for document in source.read(on_bytes):
        documents.append(document)
        size += len(document.text)
        if size >= BATCH_BYTES:
            yield Batch(documents, bytes_read)
            documents, size, bytes_read = [], 0, 0
    yield Batch(documents, bytes_read)


def clean_documents(
    source: Source, documents: Iterable[Document], min_characters: int
) -> Iterator[tuple[str, list[str]]]:
    """(title, paragraphs) of the documents whose prose is long enough."""
    for document in documents:
        paragraphs = source.paragraphs(document)
        if sum(map(len, paragraphs)) >= max(min_characters, 1):
            yield document.title, paragraphs


class _Worker(NamedTuple):
    """What a worker must know; the reader stays behind, it cannot be sent."""

    source: Source
    min_characters: int


def for_workers(source: Source) -> Source:
    """The source without its reader: what cleaning needs, and can be sent to another process."""
    return Source(_no_reader, source.total_bytes, source.is_markup, source.hidden_namespaces)


def _no_reader(_: object) -> Iterator[Document]:
    raise AssertionError("a worker reads no input")


def _extract_batch(worker: _Worker, batch: Batch) -> tuple[bytes, int, int]:
    """JSON lines, documents and words of a batch."""
    lines, words = [], 0
    for title, paragraphs in clean_documents(worker.source, batch.documents, worker.min_characters):
        text = "\n".join(paragraphs)
        words += len(text.split())
        lines.append(json.dumps({"title": title, "text": text}, ensure_ascii=False) + "\n")
    return "".join(lines).encode(), len(lines), words


def extract(
    source: Source, output: Path, workers: int = 1, min_characters: int = DEFAULT_MIN_CHARACTERS
) -> tuple[int, int]:
    """Writes the clean documents of a source as JSON Lines, atomically.

    Returns:
        Documents and words written.

    Raises:
        UserError: the input is broken, or holds no prose.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(output.name + ".tmp")
    documents = words = 0
    function = functools.partial(_extract_batch, _Worker(for_workers(source), min_characters))
    sizes: list[int] = []

    def counted() -> Iterator[Batch]:
        for batch in batches(source):
            sizes.append(batch.bytes_read)
            yield batch

    with open(temporary, "wb") as stream, Progress(source.total_bytes, "extract") as progress:
        for number, (lines, more_documents, more_words) in enumerate(ordered_map(function, counted(), workers)):
            stream.write(lines)
            documents += more_documents
            words += more_words
            progress.advance(sizes[number], f"{documents:,} articles, {words:,} words")
    if not documents:
        temporary.unlink()
        raise UserError("the input holds no prose: no document is long enough (--min-characters)")
    os.replace(temporary, output)
    return documents, words


def add_extract_options(parser: argparse.ArgumentParser, sentences_too: bool = False) -> None:
    """Options of reading and cleaning; ``sentences_too`` offers the sentences step's output too."""
    add_source_options(parser, sentences_too)
    parser.add_argument(
        "--min-characters",
        type=int,
        default=DEFAULT_MIN_CHARACTERS,
        metavar="N",
        help="shorter documents are left out (default %(default)s)",
    )
    add_workers_option(parser)


def add_workers_option(parser: argparse.ArgumentParser) -> None:
    """How many processes; never changes the output."""
    parser.add_argument(
        "--workers",
        type=positive,
        default=available_cores(),
        metavar="N",
        help="processes; the output does not depend on it (default %(default)s)",
    )


def _action(options: argparse.Namespace) -> None:
    documents, words = extract(source_of(options), options.output, options.workers, options.min_characters)
    print(f"{options.output}: {documents:,} documents, {words:,} words")


def main(arguments: list[str] | None = None) -> int:
    """Command line of the step."""
    parser = make_parser("data_utils.wikipedia.extract", "Clean prose of a dump or another input, as JSON Lines.")
    add_extract_options(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="JSON Lines file to write")
    return run_main(parser, _action, arguments)


if __name__ == "__main__":
    sys.exit(main())
