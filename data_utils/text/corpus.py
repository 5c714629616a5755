"""A corpus: sentence files, with one sentence per line and a blank line after each document.

The files count as one text, so shards, each of which has its own random seed, do not depend on how the documents are
split into files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from data_utils.recipe import RECIPE_NAME, identify_files
from data_utils.shards import Shard
from utilities.errors import UserError

CORPUS_NAME = "corpus.json"
REJECTED_NAME = "set_aside.jsonl"  # documents that could not be used; the name that earlier versions gave it
HELD_OUT_NAME = "sentences_000.txt"

DEFAULT_SHARD_BYTES = 4 << 20
SMALLEST_SHARD = 128 << 10
FEWEST_SHARDS = 8  # a small corpus is cut into smaller shards to give all cores work
BLOCK_BYTES = 1 << 20
DOCUMENT_END = re.compile(rb"\n\r?\n")


class Corpus(NamedTuple):
    """A folder of sentence files, in order, with their counts."""

    files: list[Path]
    documents: int
    sentences: int
    words: int
    rejected: int  # documents that could not be used
    identity: Any  # identifies this corpus in the recipe of a data set that is made from it


def read_corpus(folder: Path, output: Path | None = None) -> Corpus:
    """Return a corpus that ``write_sentences`` wrote, or the user's own sentence files, which have no counts.

    A folder ``output`` for what is made of it must be another one.
    """
    if output is not None and output.is_dir() and folder.is_dir() and output.samefile(folder):
        raise UserError(f"--output {output}: is the folder of the sentences, which it would change; name another one")
    summary = folder / CORPUS_NAME
    counts = (0, 0, 0, 0)
    if summary.exists():
        try:
            data = json.loads(summary.read_text(encoding="utf-8"))
            files = [folder / name for name in data["files"]]
            counts = (data["documents"], data["sentences"], data["words"], data.get("set_aside", 0))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{summary}: broken ({error}); run the sentences step again") from error
    elif folder.is_file():
        files = [folder]
    elif (folder / RECIPE_NAME).exists():  # its text files are a part of a corpus, or the vocabulary of a data set
        raise UserError(
            f"--sentences {folder}: has no {CORPUS_NAME}, so the sentences step did not end there; run it again, or"
            " name the folder corpus of a data set"
        )
    else:
        files = sorted(folder.glob("*.txt"))
    missing = [path for path in files if not path.is_file()]
    if missing or not files:
        what = f"{missing[0].name} is missing" if missing else "no .txt files"
        raise UserError(f"--sentences {folder}: {what}; make them with python -m data_utils.text.sentences")
    return Corpus(files, *counts, identify_files(files))


def read_documents(files: Sequence[Path]) -> Iterator[bytes]:
    """Yield each document of UTF-8 files with the blank line after it; the end of a file also ends a document."""
    for path in files:
        with open(path, "rb") as stream:
            text = bytearray()
            while block := stream.read(BLOCK_BYTES):
                start, searched = 0, max(0, len(text) - 2)  # the end of a document may begin in the last two bytes
                text += block
                for match in DOCUMENT_END.finditer(text, searched):
                    yield _checked(path, bytes(text[start : match.end()]))
                    start = match.end()
                del text[:start]
            if text:
                yield _checked(path, bytes(text) + b"\n\n")


def _checked(path: Path, document: bytes) -> bytes:
    try:
        document.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason}); convert the text") from error
    return document


def shard_bytes_of(text_bytes: int) -> int:
    """Return the approximate size of a shard: 4 MB, or less for a corpus under 32 MB."""
    return min(DEFAULT_SHARD_BYTES, max(SMALLEST_SHARD, text_bytes // FEWEST_SHARDS + 1))


def corpus_shards(files: Sequence[Path], shard_bytes: int) -> Iterator[Shard]:
    """Yield the text of sentence files in shards of about a size.

    Each has at least two documents if possible, because a random segment comes from another one.
    """
    number = size = 0
    full: list[bytes] = []  # a shard that is kept until the next one has its second document
    current: list[bytes] = []
    for document in read_documents(files):
        current.append(document)
        size += len(document)
        if full and len(current) == 2:
            yield _shard(number, full)
            number, full = number + 1, []
        if size >= shard_bytes and len(current) >= 2:
            full, current, size = current, [], 0
    if len(current) == 1:
        full, current = full + current, []
    for documents in filter(None, (full, current)):
        yield _shard(number, documents)
        number += 1


def _shard(number: int, documents: list[bytes]) -> Shard:
    text = b"".join(documents)
    return Shard(number, text, len(text))
