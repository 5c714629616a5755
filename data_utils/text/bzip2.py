"""Decompresses bz2 from any position, which lets several workers read separate parts of a dump.

A bz2 file is a sequence of blocks of at most 900 kB. Each is compressed on its own and begins with 48 fixed bits, at
any bit position. A block between the head and the end of a stream is a bz2 file by itself.
Format: https://github.com/dsnet/compress/blob/master/doc/bzip2-format.pdf, sections 2.2 to 2.4.
"""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BLOCK_MAGIC, STREAM_END_MAGIC = 0x314159265359, 0x177245385090
MAGIC_BITS, CHECKSUM_BITS = 48, 32
MAGIC_BYTES = 7  # bytes that a magic number may touch
HEAD = b"BZh9"  # head of a stream of blocks of up to 900 kB; also valid for smaller blocks
READ_BYTES = 1 << 20
MAX_FALSE_MARKS = 2  # consecutive ones; in one of some thousand dumps, bits of a block equal a mark by chance


class _Mark(NamedTuple):
    """The bit at which a block, or the end of a stream, begins."""

    bit: int
    is_block: bool


def _marks(data: bytes, first_bit: int) -> list[_Mark]:
    """Return the marks in a piece of a file, in order; the piece begins at the file's bit ``first_bit``."""
    marks = []
    for magic in (BLOCK_MAGIC, STREAM_END_MAGIC):
        for shift in range(8):
            whole_bytes = (magic << (8 - shift)).to_bytes(MAGIC_BYTES, "big")[1:6]  # these can be searched for
            position = data.find(whole_bytes, 1)
            while position >= 0:
                window = data[position - 1 : position - 1 + MAGIC_BYTES].ljust(MAGIC_BYTES, b"\0")
                if int.from_bytes(window, "big") >> (8 - shift) & ((1 << MAGIC_BITS) - 1) == magic:
                    marks.append(_Mark(first_bit + (position - 1) * 8 + shift, magic == BLOCK_MAGIC))
                position = data.find(whole_bytes, position + 1)
    return sorted(marks)


def ends_properly(tail: bytes) -> bool:
    """Return whether the last bytes of a file are the end of a stream, padded to whole bytes."""
    last = tail[-2 * MAGIC_BYTES :]
    end_bits = MAGIC_BITS + CHECKSUM_BITS
    return any(not mark.is_block and end_bits <= len(last) * 8 - mark.bit < end_bits + 8 for mark in _marks(last, 0))


def read_blocks(path: Path, start: int, end: int) -> Iterator[tuple[bool, bytes]]:
    """Decompress the blocks from byte ``start`` until the file ends or the caller stops.

    Args:
        path: A bz2 file, of one stream or many.
        start: First byte of the file to look at.
        end: One past the last byte of the caller's part.

    Yields:
        Whether the block begins in the caller's part, and its decompressed bytes.

    Raises:
        EOFError: The file is damaged or cut off.
    """
    with open(path, "rb") as stream:
        stream.seek(start)
        data, first_bit = b"", start * 8  # the part of the file in memory, and the bit at which it begins
        taken, at_end = 0, False  # blocks have been returned up to this bit
        while not at_end:
            more = stream.read(READ_BYTES)
            at_end = not more
            data += more
            last_bit = first_bit + len(data) * 8
            marks = [mark for mark in _marks(data, first_bit) if at_end or mark.bit < last_bit - MAGIC_BYTES * 8]
            bounds = [mark.bit for mark in marks] + [last_bit] * at_end
            # A block is returned once the mark after it has been read, and further marks in case that one is false.
            complete = max(0, len(bounds) - 1 - (0 if at_end else MAX_FALSE_MARKS))
            for number, mark in enumerate(marks[:complete]):
                if mark.is_block and mark.bit >= taken:
                    ends = [bit - first_bit for bit in bounds[number + 1 : number + 2 + MAX_FALSE_MARKS]]
                    block, block_end = _decompressed(data, mark.bit - first_bit, ends)
                    taken = first_bit + block_end
                    yield mark.bit < end * 8, block
            if complete and not at_end:
                dropped = (bounds[complete] - first_bit) // 8
                data, first_bit = data[dropped:], first_bit + dropped * 8


def _decompressed(data: bytes, begin: int, ends: list[int]) -> tuple[bytes, int]:
    """Decompress the block that ends at the first of these bits, or at a later one if that is a false mark."""
    for end in ends:
        try:
            return bz2.decompress(_as_stream(data, begin, end)), end
        except (OSError, ValueError):
            continue
    raise EOFError("a block is damaged or cut off")


def _as_stream(data: bytes, begin: int, end: int) -> bytes:
    """Return bits ``begin`` to ``end``, one block, as a whole bz2 stream."""
    last_byte = -(-end // 8)
    length = end - begin
    bits = int.from_bytes(data[begin // 8 : last_byte], "big") >> (last_byte * 8 - end) & ((1 << length) - 1)
    checksum = bits >> max(length - MAGIC_BITS - CHECKSUM_BITS, 0) & ((1 << CHECKSUM_BITS) - 1)
    bits = (bits << MAGIC_BITS | STREAM_END_MAGIC) << CHECKSUM_BITS | checksum
    length += MAGIC_BITS + CHECKSUM_BITS
    padding = -length % 8
    return HEAD + (bits << padding).to_bytes((length + padding) // 8, "big")
