"""Reads sentence files, one sentence per line and a blank line after each document, and divides them into shards.

The files count as one text, so shards, each of which has its own random seed, do not depend on how the documents are
split into files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from data_utils.shards import Shard
from utilities.errors import UserError

DEFAULT_SHARD_BYTES = 4 << 20
SMALLEST_SHARD = 128 << 10
FEWEST_SHARDS = 8  # a small corpus is cut into smaller shards to give all cores work
BLOCK_BYTES = 1 << 20
DOCUMENT_END = re.compile(rb"\n\r?\n")


def read_documents(files: Sequence[Path]) -> Iterator[bytes]:
    """Yield each document with the blank line after it; the end of a file also ends a document.

    Raises:
        UserError: A file is not UTF-8.
    """
    for path in files:
        with open(path, "rb") as stream:
            text = b""
            while block := stream.read(BLOCK_BYTES):
                text += block
                start = 0
                for match in DOCUMENT_END.finditer(text):
                    yield _checked(path, text[start : match.end()])
                    start = match.end()
                text = text[start:]
            if text:
                yield _checked(path, text + b"\n\n")


def _checked(path: Path, document: bytes) -> bytes:
    try:
        document.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason}); convert the text") from error
    return document


def shard_bytes_of(files: Sequence[Path]) -> int:
    """Return the approximate size of a shard: 4 MB, or less for a corpus under 32 MB."""
    total = sum(path.stat().st_size for path in files)
    return min(DEFAULT_SHARD_BYTES, max(SMALLEST_SHARD, total // FEWEST_SHARDS + 1))


def corpus_shards(files: Sequence[Path], shard_bytes: int) -> Iterator[Shard]:
    """Yield the text of sentence files in shards of about a size.

    Each shard has at least two documents if the corpus does, because random segments come from another document of the
    same shard.
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
