"""The global shuffle: records of all units in one random order, in two passes of bounded memory.

Each record has a random 64-bit key. The first pass scatters a unit's records over strips of the range of keys; the
second gathers a strip from all units, sorts it, and writes its files. The order is that of the keys, so it is the same
however many strips and files there are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from crc32c import crc32c

from data_utils.records.writer import RecordFile, encode_examples, frame_records, write_atomically
from data_utils.text.columns import Columns, bytes_of, concatenated, from_bytes, take, to_bytes, to_features
from utilities.errors import UserError

RECORDS_AT_ONCE = 4096
# Text that the records of a file and of a strip come from, each pass over the corpus counted.
MOST_BYTES_OF_FILE = 24 << 20
BYTES_OF_STRIP = 80 << 20
FEWEST_FOR_STRIPS = 64  # up to so many files, each is a strip of its own

_TABLE = np.dtype([("offset", "<i8"), ("records", "<i8"), ("tokens", "<i8"), ("predictions", "<i8"), ("crc", "<i8")])


class Layout(NamedTuple):
    """How the range of keys is divided.

    Attributes:
        strips: gathered one at a time.
        files_per_strip: that a strip is written to.
    """

    strips: int
    files_per_strip: int

    @property
    def files(self) -> int:
        """Of the data set, at most: one without records is not written."""
        return self.strips * self.files_per_strip

    def file_of(self, keys: np.ndarray) -> np.ndarray:
        """(N,) the file that each key belongs to."""
        return ((keys >> np.uint64(32)) * np.uint64(self.files) >> np.uint64(32)).astype(np.int64)


def plan_layout(units: int, text_bytes: int, duplicate_factor: int) -> Layout:
    """As many files as units, but none too large; strips that fit in memory.

    Args:
        units: of the corpus.
        text_bytes: of the corpus.
        duplicate_factor: passes over it.
    """
    written = text_bytes * duplicate_factor
    files = max(units, -(-written // MOST_BYTES_OF_FILE), 1)
    if files <= FEWEST_FOR_STRIPS:
        return Layout(files, 1)
    files_per_strip = max(1, BYTES_OF_STRIP * files // written)
    return Layout(-(-files // files_per_strip), files_per_strip)


def write_spill(path: Path, columns: Columns, pieces: np.ndarray, layout: Layout) -> None:
    """First pass: writes a unit's records, strip after strip.

    Args:
        path: the file.
        columns: records in any order.
        pieces: (V,) how often each piece occurs in the unit's text; kept for the end.
        layout: of the keys.
    """
    order = np.argsort(columns.keys, kind="stable")
    strips = layout.file_of(columns.keys[order]) // layout.files_per_strip
    bounds = np.searchsorted(strips, np.arange(layout.strips + 1))
    table = np.zeros(layout.strips, _TABLE)
    frequencies = pieces.astype("<i8").tobytes()
    parts: list[bytes] = []
    offset = table.nbytes + len(frequencies)
    for strip, (first, last) in enumerate(itertools.pairwise(bounds)):
        part = take(columns, order[first:last])
        data = to_bytes(part)
        table[strip] = (offset, *part.size, crc32c(data))
        parts.append(data)
        offset += len(data)
    write_atomically(path, b"".join([table.tobytes(), frequencies, *parts]))


def read_pieces(path: Path, layout: Layout, vocabulary_size: int) -> np.ndarray:
    """(V,) how often each piece occurs in a unit's text."""
    return np.fromfile(path, "<i8", vocabulary_size, offset=layout.strips * _TABLE.itemsize)


def read_strip(path: Path, strip: int, token: np.dtype) -> Columns:
    """A unit's records of one strip.

    Raises:
        UserError: they are not what was written.
    """
    with open(path, "rb") as stream:
        stream.seek(strip * _TABLE.itemsize)
        offset, records, tokens, predictions, checksum = np.frombuffer(stream.read(_TABLE.itemsize), _TABLE)[0].item()
        stream.seek(offset)
        size = (records, tokens, predictions)
        data = stream.read(bytes_of(size, token))
    if crc32c(data) != checksum:
        raise UserError(f"{path}: was changed or damaged on disk; delete it and run the command again")
    return from_bytes(data, size, token)


def gather(spills: Sequence[Path], strip: int, layout: Layout, token: np.dtype) -> Iterator[tuple[int, Columns]]:
    """Second pass: the records of a strip in the order of their keys, file by file.

    Args:
        spills: of all units, in order.
        strip: its number.
        layout: as in the first pass.
        token: type of the ids.

    Yields:
        Number of a file, and its records.
    """
    columns = concatenated([read_strip(path, strip, token) for path in spills])
    order = np.argsort(columns.keys, kind="stable")
    files = layout.file_of(columns.keys[order])
    first = strip * layout.files_per_strip
    bounds = np.searchsorted(files, np.arange(first, first + layout.files_per_strip + 1))
    for number, (begin, end) in enumerate(itertools.pairwise(bounds), first):
        yield number, take(columns, order[begin:end])


def write_records(path: Path, columns: Columns, max_seq_length: int, max_predictions: int) -> dict[str, Any]:
    """Writes records as a TFRecord file with its index.

    Returns:
        The file's entry in the manifest.
    """
    with RecordFile(path) as file:
        for start in range(0, columns.keys.size, RECORDS_AT_ONCE):
            rows = np.arange(start, min(start + RECORDS_AT_ONCE, columns.keys.size))
            features = to_features(take(columns, rows), max_seq_length, max_predictions)
            file.add(frame_records(encode_examples(features)))
        return file.finish()
