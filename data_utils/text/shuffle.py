"""Shuffles the records of all units globally, in two passes of bounded memory.

Each record has a random 64-bit key. The first pass scatters a unit's records over strips of the range of keys; the
second gathers a strip from all units, sorts it, and writes its files. The order is that of the keys, so it does not
depend on the numbers of strips and files.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from crc32c import crc32c

from data_utils.records.writer import EncodedFile, RecordFile
from utilities.errors import UserError
from utilities.files import write_atomically

KEY, LENGTH = np.dtype("<u8"), np.dtype("<u4")
# Amount of text, multiplied by the passes over it, for the records of a file and of a strip.
MAX_BYTES_OF_FILE = 24 << 20
BYTES_OF_STRIP = 80 << 20
MAX_FILES_AS_STRIPS = 64  # up to this number of files, each file is a strip of its own

# For each strip of a spill file: its offset, the number of its records, its bytes, and their checksum.
_TABLE = np.dtype([("offset", "<i8"), ("records", "<i8"), ("bytes", "<i8"), ("crc", "<i8")])


class Layout(NamedTuple):
    """The division of the range of keys into strips, which are gathered one at a time, and of strips into files."""

    strips: int
    files_per_strip: int

    @property
    def files(self) -> int:
        """The maximum number of files; a file without records is not written."""
        return self.strips * self.files_per_strip

    def file_number(self, keys: np.ndarray) -> np.ndarray:
        """Return the number of the file of each of the keys (N,)."""
        return ((keys >> np.uint64(32)) * np.uint64(self.files) >> np.uint64(32)).astype(np.int64)


class Shuffled(NamedTuple):
    """Framed records, and their keys (N,) uint64."""

    keys: np.ndarray
    records: Sequence[bytes | memoryview]


def plan_layout(units: int, text_bytes: int, duplicate_factor: int) -> Layout:
    """Plan strips that fit in memory, and at least as many files as the corpus has units, none of them too large."""
    written = text_bytes * duplicate_factor
    files = max(units, -(-written // MAX_BYTES_OF_FILE), 1)
    if files <= MAX_FILES_AS_STRIPS:
        return Layout(files, 1)
    files_per_strip = max(1, BYTES_OF_STRIP * files // written)
    return Layout(-(-files // files_per_strip), files_per_strip)


def write_spill(path: Path, shuffled: Shuffled, pieces: np.ndarray, layout: Layout) -> None:
    """Write a unit's records strip by strip, and its counts of pieces (V,), in the first pass."""
    order = np.argsort(shuffled.keys, kind="stable")
    bounds = np.searchsorted(
        layout.file_number(shuffled.keys[order]) // layout.files_per_strip, np.arange(layout.strips + 1)
    )
    table = np.zeros(layout.strips, _TABLE)
    frequencies = pieces.astype("<i8").tobytes()
    parts: list[bytes] = []
    offset = table.nbytes + len(frequencies)
    for strip, (first, last) in enumerate(itertools.pairwise(bounds)):
        rows = order[first:last].tolist()
        lengths = np.array([len(shuffled.records[row]) for row in rows], LENGTH)
        keys = shuffled.keys[rows].astype(KEY)
        data = b"".join([keys.tobytes(), lengths.tobytes(), *(shuffled.records[row] for row in rows)])
        table[strip] = (offset, len(rows), len(data), crc32c(data))
        parts.append(data)
        offset += len(data)
    write_atomically(path, b"".join([table.tobytes(), frequencies, *parts]))


def read_pieces(path: Path, layout: Layout, vocabulary_size: int) -> np.ndarray:
    """Return how often each piece occurs in a unit's text (V,)."""
    return np.fromfile(path, "<i8", vocabulary_size, offset=layout.strips * _TABLE.itemsize)


def read_strip(path: Path, strip: int) -> Shuffled:
    """Return a unit's records of one strip.

    Raises:
        UserError: The file was changed or damaged.
    """
    with open(path, "rb") as stream:
        stream.seek(strip * _TABLE.itemsize)
        offset, count, size, checksum = np.frombuffer(stream.read(_TABLE.itemsize), _TABLE)[0].item()
        stream.seek(offset)
        data = stream.read(size)
    if crc32c(data) != checksum:
        raise UserError(f"{path}: was changed or damaged on disk; delete it and run the command again")
    lengths = np.frombuffer(data, LENGTH, count, count * KEY.itemsize)
    bounds = itertools.accumulate(lengths.tolist(), initial=count * (KEY.itemsize + LENGTH.itemsize))
    view = memoryview(data)
    return Shuffled(np.frombuffer(data, KEY, count), [view[begin:end] for begin, end in itertools.pairwise(bounds)])


def gather(spills: Sequence[Path], strip: int, layout: Layout) -> Iterator[tuple[int, Shuffled]]:
    """Yield the number and the records of each file of a strip in the order of their keys, in the second pass."""
    parts = [read_strip(path, strip) for path in spills]
    keys = np.concatenate([part.keys for part in parts])
    records = [record for part in parts for record in part.records]
    order = np.argsort(keys, kind="stable")
    files = layout.file_number(keys[order])
    first = strip * layout.files_per_strip
    bounds = np.searchsorted(files, np.arange(first, first + layout.files_per_strip + 1))
    for number, (begin, end) in enumerate(itertools.pairwise(bounds), first):
        rows = order[begin:end]
        yield number, Shuffled(keys[rows], [records[row] for row in rows.tolist()])


def write_records(path: Path, records: Sequence[bytes | memoryview]) -> dict[str, Any]:
    """Write framed records as a TFRecord file with its index, and return its entry in the manifest."""
    lengths = list(map(len, records))
    offsets = itertools.accumulate(lengths, initial=0)
    with RecordFile(path) as file:
        file.add(EncodedFile(b"".join(records), list(zip(offsets, lengths))))
        return file.finish()
