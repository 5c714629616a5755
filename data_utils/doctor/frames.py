"""The records of a file one after another, however damaged the file is."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_utils.records.framing import FRAMING_BYTES, HEADER_BYTES, RecordError, masked_crc32c, unframe
from data_utils.records.index import find_index, load_index
from utilities.errors import UserError

READ_BYTES = 8 << 20
LONGEST_RECORD = 64 << 20  # bytes; a header that says more is taken for a damaged one
_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")


class Frame(NamedTuple):
    """A record, or what is in its place.

    Attributes:
        number: of the record in its file, from 0.
        payload: None where it is damaged.
        problem: then why.
    """

    number: int
    payload: bytes | None
    problem: str


class FileNote(NamedTuple):
    """Something about the file as a whole.

    Attributes:
        is_wrong: or only worth knowing.
    """

    text: str
    is_wrong: bool


def boundaries_of(path: Path) -> tuple[np.ndarray | None, list[FileNote]]:
    """Where the records begin, by the index beside the file; None where there is none that fits."""
    index = find_index(path)
    if index is None:
        return None, [FileNote("has no index; the first run that reads it will make one", is_wrong=False)]
    try:
        return load_index(index, path, path.stat().st_size), []
    except UserError as error:
        return None, [FileNote(str(error), is_wrong=True)]


def read_frames(path: Path, boundaries: np.ndarray | None) -> Iterator[Frame]:
    """All records of a file, their checksums verified.

    Args:
        path: a TFRecord file.
        boundaries: where the records begin and the last one ends; None walks from header to header, and after a damaged
            header looks for the next one.
    """
    if boundaries is None:
        yield from _walk(path)
    else:
        yield from _by_index(path, boundaries)


def _by_index(path: Path, boundaries: np.ndarray) -> Iterator[Frame]:
    first = 0
    with open(path, "rb") as stream:
        while first < boundaries.size - 1:
            last = int(np.searchsorted(boundaries, boundaries[first] + READ_BYTES, side="right")) - 1
            last = max(last, first + 1)
            base = int(boundaries[first])
            stream.seek(base)
            data = memoryview(stream.read(int(boundaries[last]) - base))
            bounds = (boundaries[first : last + 1] - base).tolist()
            for number, (begin, end) in enumerate(itertools.pairwise(bounds), first):
                yield _checked(data[begin:end], path, number)
            first = last


def _checked(framed: memoryview, path: Path, number: int) -> Frame:
    try:
        return Frame(number, unframe(framed, path, number), "")
    except RecordError as error:
        return Frame(number, None, error.reason)


def _walk(path: Path) -> Iterator[Frame]:
    size = path.stat().st_size
    offset = number = 0
    with open(path, "rb") as stream:
        while offset < size:
            stream.seek(offset)
            length = _length(stream.read(HEADER_BYTES))
            if length is not None and offset + length + FRAMING_BYTES <= size:
                stream.seek(offset)
                yield _checked(memoryview(stream.read(length + FRAMING_BYTES)), path, number)
                offset += length + FRAMING_BYTES
            else:
                following = _next_header(path, offset + 1, size)
                what = "is cut off" if length is not None else "is damaged (checksum of its length does not match)"
                yield Frame(number, None, f"{what}; {following - offset:,} bytes up to the next record are lost")
                offset = following
            number += 1


def _length(header: bytes) -> int | None:
    """The length that a header gives; None where it is none."""
    if len(header) < HEADER_BYTES:
        return None
    (length,) = _LENGTH.unpack_from(header)
    right = masked_crc32c(header[:8]) == _CHECKSUM.unpack_from(header, 8)[0]
    return length if right and length <= LONGEST_RECORD else None


def _next_header(path: Path, start: int, size: int) -> int:
    """The first place from ``start`` on where a header stands, or the end of the file."""
    with open(path, "rb") as stream:
        while start + HEADER_BYTES <= size:
            stream.seek(start)
            data = stream.read(READ_BYTES + HEADER_BYTES)
            values = np.frombuffer(data, np.uint8)
            places = values.size - HEADER_BYTES + 1
            # Lengths are small: the upper half of their eight bytes is zero.
            may_be = np.ones(max(places, 0), bool)
            for place in range(4, 8):
                may_be &= values[place : place + places] == 0
            for place in np.flatnonzero(may_be).tolist():
                length = _length(data[place : place + HEADER_BYTES])
                if length is not None and start + place + length + FRAMING_BYTES <= size:
                    return start + place
            start += READ_BYTES
    return size
