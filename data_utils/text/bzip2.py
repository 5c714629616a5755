"""Decompressing bz2 from any place on, so that parts of a dump are read side by side and none twice.

A bz2 file is a row of blocks of at most 900 kB, each packed on its own and begun by 48 fixed bits, at any bit; a
stream's head and end stand around some of them. One block between a head and an end of our making is a bz2 file.
Format: https://github.com/dsnet/compress/blob/master/doc/bzip2-format.pdf, sections 2.2 to 2.4.
"""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BLOCK_MAGIC, STREAM_END_MAGIC = 0x314159265359, 0x177245385090
MAGIC_BITS, CHECKSUM_BITS = 48, 32
HEAD = b"BZh9"  # of a stream whose blocks hold up to 900 kB: right for smaller ones too
READ_BYTES = 1 << 20
LONGEST_MARK = 7  # bytes that 48 bits may touch
# Bits that look like the begin of a block stand within one by chance, once in some thousand dumps.
LOOKALIKES = 2


class _Mark(NamedTuple):
    """Where a block, or the end of a stream, begins."""

    bit: int
    is_block: bool


class _Pattern(NamedTuple):
    """48 bits at a bit offset: the whole bytes among them, which can be searched for."""

    is_block: bool
    magic: int
    shift: int
    inner: bytes
    skipped: int  # bytes between the begin of the bits and ``inner``


def _pattern(magic: int, shift: int) -> _Pattern:
    around = (magic << (8 - shift)).to_bytes(LONGEST_MARK, "big")
    skipped = 1 if shift else 0
    inner = around[1:6] if shift else around[:6]
    return _Pattern(magic == BLOCK_MAGIC, magic, shift, inner, skipped)


_PATTERNS = [_pattern(magic, shift) for magic in (BLOCK_MAGIC, STREAM_END_MAGIC) for shift in range(8)]


def _marks(data: bytes, base: int) -> list[_Mark]:
    """Marks in a piece of a file, in order.

    Args:
        data: the piece.
        base: the bit of the file at which it begins.
    """
    found = []
    for pattern in _PATTERNS:
        at = data.find(pattern.inner)
        while at >= 0:
            first = at - pattern.skipped
            window = data[max(first, 0) : first + LONGEST_MARK].ljust(LONGEST_MARK, b"\0")
            bits = int.from_bytes(window, "big") >> (8 - pattern.shift) & ((1 << MAGIC_BITS) - 1)
            if first >= 0 and bits == pattern.magic:
                found.append(_Mark(base + first * 8 + pattern.shift, pattern.is_block))
            at = data.find(pattern.inner, at + 1)
    return sorted(found)


def ends_properly(tail: bytes) -> bool:
    """Whether the last bytes of a file, some tens at least, hold the end of a stream and nothing behind it."""
    footer = (MAGIC_BITS + CHECKSUM_BITS, MAGIC_BITS + CHECKSUM_BITS + 7)  # bits, with the padding to whole bytes
    last = tail[-LONGEST_MARK * 2 :]
    return any(not mark.is_block and footer[0] <= len(last) * 8 - mark.bit <= footer[1] for mark in _marks(last, 0))


def read_blocks(path: Path, start: int, end: int) -> Iterator[tuple[bool, bytes]]:
    """What the blocks hold from a byte of the file on, up to its end.

    Args:
        path: a bz2 file, of one stream or many.
        start, end: bytes of the file.

    Yields:
        Whether the block begins in [start, end), and its decompressed bytes. Stop when you have what you need.

    Raises:
        OSError, EOFError: the file is damaged or cut off.
    """
    with open(path, "rb") as stream:
        stream.seek(start)
        data, base = b"", start * 8  # what is held of the file, and the bit at which it begins
        taken, at_end = 0, False  # blocks were taken up to this bit
        while not at_end:
            more = stream.read(READ_BYTES)
            at_end = not more
            data += more
            size = base + len(data) * 8
            marks = _marks(data, base)
            settled = [mark for mark in marks if at_end or mark.bit < size - LONGEST_MARK * 8]
            bounds = [mark.bit for mark in settled] + [size] * at_end
            # A block is taken when what follows it is in sight, and some more in case that is a lookalike.
            last = len(bounds) - 1 if at_end else len(bounds) - 1 - LOOKALIKES
            for number in range(max(last, 0)):
                mark = settled[number]
                if mark.is_block and mark.bit >= taken:
                    ends = [bit - base for bit in bounds[number + 1 : number + 2 + LOOKALIKES]]
                    block, taken_here = _decompressed(data, mark.bit - base, ends)
                    taken = base + taken_here
                    yield mark.bit < end * 8, block
            if last > 0 and not at_end:
                kept = (bounds[last] - base) // 8
                data, base = data[kept:], base + kept * 8


def _decompressed(data: bytes, begin: int, ends: list[int]) -> tuple[bytes, int]:
    """What the block holds that ends at the first of these bits, or at a later one if the first is a lookalike."""
    for end in ends:
        try:
            return bz2.decompress(_as_stream(data, begin, end)), end
        except (OSError, ValueError):
            continue
    raise EOFError("a block is damaged or cut off")


def _as_stream(data: bytes, begin: int, end: int) -> bytes:
    """Bits ``begin`` to ``end``, one block, as a whole bz2 stream."""
    last = -(-end // 8)
    length = end - begin
    bits = int.from_bytes(data[begin // 8 : last], "big") >> (last * 8 - end) & ((1 << length) - 1)
    checksum = bits >> max(length - MAGIC_BITS - CHECKSUM_BITS, 0) & ((1 << CHECKSUM_BITS) - 1)
    bits = (bits << MAGIC_BITS | STREAM_END_MAGIC) << CHECKSUM_BITS | checksum
    length += MAGIC_BITS + CHECKSUM_BITS
    padding = -length % 8
    return HEAD + (bits << padding).to_bytes((length + padding) // 8, "big")
