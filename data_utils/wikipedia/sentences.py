"""Step ``sentences``: any input as plain text, one sentence a line, a blank line after each document.

Writes ``sentences_000.txt``, ``sentences_001.txt``, … of about 256 MB, the Punkt parameters where they were
trained here, and last ``corpus.json`` with counts: where it is, the folder is complete.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from data_utils.records_writer import write_atomically
from data_utils.wikipedia.command_line import Progress, make_parser, positive, run_main
from data_utils.wikipedia.extract import (
    DEFAULT_MIN_CHARACTERS,
    Batch,
    add_extract_options,
    batches,
    clean_documents,
    for_workers,
)
from data_utils.wikipedia.parallel import ordered_map
from data_utils.wikipedia.segmentation import load_splitter, save_parameters, train, trained_model_exists
from data_utils.wikipedia.sources import Source, source_of
from utilities.errors import UserError

CORPUS_NAME = "corpus.json"
PUNKT_NAME = "punkt.json"
PART_BYTES = 256 << 20
DEFAULT_TRAINING_MEGABYTES = 4


class Corpus(NamedTuple):
    """A folder of sentence files.

    Attributes:
        files: in order.
        documents, sentences, words: in all files together.
    """

    files: list[Path]
    documents: int
    sentences: int
    words: int


class _Piece(NamedTuple):
    """Sentences of a batch of documents, and counts."""

    text: bytes
    documents: int
    sentences: int
    words: int


def _split_batch(source: Source, model: str, min_characters: int, batch: Batch) -> _Piece:
    splitter = load_splitter(model)
    lines: list[str] = []
    documents = 0
    for _, paragraphs in clean_documents(source, batch.documents, min_characters):
        sentences = [sentence for paragraph in paragraphs for sentence in splitter.split(paragraph)]
        if sentences:
            lines += sentences
            lines.append("")
            documents += 1
    text = "".join(line + "\n" for line in lines)
    return _Piece(text.encode(), documents, len(lines) - documents, len(text.split()))


def choose_model(source: Source, folder: Path, language: str, training_megabytes: int) -> str:
    """The Punkt model to split with: NLTK's trained one if installed, else one trained on the input's head.

    Returns:
        What ``load_splitter`` takes.
    """
    if trained_model_exists(language):
        return language
    path = folder / PUNKT_NAME
    if not path.exists():
        limit = training_megabytes * 10**6
        with Progress(limit, "train Punkt") as progress:
            save_parameters(train(_sample(source, limit, progress)), path)
    return str(path)


def _sample(source: Source, limit: int, progress: Progress) -> Iterator[str]:
    """Prose of the first documents, up to ``limit`` characters."""
    taken = 0
    for _, paragraphs in clean_documents(source, source.read(lambda amount: None), 1):
        text = "\n".join(paragraphs)[: limit - taken]
        yield text
        taken += len(text)
        progress.advance(len(text))
        if taken >= limit:
            return


def write_sentences(
    source: Source,
    folder: Path,
    workers: int = 1,
    language: str = "english",
    min_characters: int = DEFAULT_MIN_CHARACTERS,
    training_megabytes: int = DEFAULT_TRAINING_MEGABYTES,
    part_bytes: int = PART_BYTES,
) -> Corpus:
    """Writes the sentences of a source into a folder.

    Args:
        source: what to read.
        folder: made if absent; sentences of an earlier run in it are replaced.
        workers: processes; the output does not depend on it.
        language: of NLTK's trained Punkt model, where that is installed.
        min_characters: documents with less prose are left out.
        training_megabytes: how much text Punkt is trained on where no trained model is installed.
        part_bytes: a file is closed after the document that passes this size.

    Raises:
        UserError: the input is broken, or holds no prose.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in [folder / CORPUS_NAME, folder / PUNKT_NAME, *folder.glob("sentences_*.txt")]:
        stale.unlink(missing_ok=True)
    model = choose_model(source, folder, language, training_megabytes)
    function = functools.partial(_split_batch, for_workers(source), model, min_characters)
    read: list[int] = []

    def counted() -> Iterator[Batch]:
        for batch in batches(source):
            read.append(batch.bytes_read)
            yield batch

    files: list[Path] = []
    totals = [0, 0, 0]
    with Progress(source.total_bytes, "sentences") as progress, _Parts(folder, part_bytes) as parts:
        for number, piece in enumerate(ordered_map(function, counted(), workers)):
            parts.write(piece.text)
            totals = [total + more for total, more in zip(totals, piece[1:])]
            progress.advance(read[number], f"{totals[0]:,} documents, {totals[2]:,} words")
        files = parts.finish()
    if not totals[0]:
        raise UserError("the input holds no prose: no document is long enough (see --min-characters)")
    corpus = Corpus(files, *totals)
    write_atomically(folder / CORPUS_NAME, (json.dumps(_as_json(corpus), indent=2) + "\n").encode())
    return corpus


class _Parts:
    """Sentence files one after another, each under a temporary name until it is whole."""

    def __init__(self, folder: Path, part_bytes: int):
        self.folder, self.part_bytes = folder, part_bytes
        self.files: list[Path] = []
        self.stream = None
        self.size = 0

    def __enter__(self) -> _Parts:
        return self

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.stream.close()
            Path(self.stream.name).unlink()

    def write(self, text: bytes) -> None:
        if not text:
            return
        if self.stream is None:
            self.files.append(self.folder / f"sentences_{len(self.files):03d}.txt")
            self.stream = open(f"{self.files[-1]}.tmp", "wb")  # noqa: SIM115 (closed by `finish` or `__exit__`)
            self.size = 0
        self.stream.write(text)
        self.size += len(text)
        if self.size >= self.part_bytes:
            self.finish()

    def finish(self) -> list[Path]:
        if self.stream is not None:
            self.stream.close()
            Path(self.stream.name).replace(self.files[-1])
            self.stream = None
        return self.files


def _as_json(corpus: Corpus) -> dict[str, object]:
    return {**corpus._asdict(), "files": [path.name for path in corpus.files]}


def read_corpus(folder: Path) -> Corpus:
    """A folder that ``write_sentences`` wrote; or sentence files of the user's own, which carry no counts.

    Raises:
        UserError: there is nothing in it.
    """
    summary = folder / CORPUS_NAME
    if summary.exists():
        try:
            data = json.loads(summary.read_text(encoding="utf-8"))
            corpus = Corpus(
                [folder / name for name in data["files"]], data["documents"], data["sentences"], data["words"]
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{summary}: broken ({error}); run the sentences step again") from error
    elif folder.is_file():
        corpus = Corpus([folder], 0, 0, 0)
    else:
        corpus = Corpus(sorted(folder.glob("*.txt")), 0, 0, 0)
    missing = [path for path in corpus.files if not path.is_file()]
    if missing or not corpus.files:
        what = f"{missing[0].name} is missing" if missing else "no .txt files"
        raise UserError(f"--sentences {folder}: {what}; make them with python -m data_utils.wikipedia.sentences")
    return corpus


def add_sentence_options(parser: argparse.ArgumentParser) -> None:
    """Options of splitting."""
    parser.add_argument(
        "--language",
        default="english",
        help="of NLTK's trained Punkt model (punkt_tab), used where it is installed (default %(default)s)",
    )
    parser.add_argument(
        "--punkt-training-megabytes",
        type=positive,
        default=DEFAULT_TRAINING_MEGABYTES,
        metavar="N",
        help="text to train Punkt on where no trained model is installed (default %(default)s)",
    )


def _action(options: argparse.Namespace) -> None:
    corpus = write_sentences(
        source_of(options),
        options.output,
        options.workers,
        options.language,
        options.min_characters,
        options.punkt_training_megabytes,
    )
    print(f"{options.output}: {corpus.documents:,} documents, {corpus.sentences:,} sentences, {corpus.words:,} words")


def main(arguments: list[str] | None = None) -> int:
    """Command line of the step."""
    parser = make_parser("data_utils.wikipedia.sentences", "One sentence a line, a blank line after each document.")
    add_extract_options(parser)
    add_sentence_options(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the sentence files")
    return run_main(parser, _action, arguments)


if __name__ == "__main__":
    sys.exit(main())
