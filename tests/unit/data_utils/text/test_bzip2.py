"""bz2 that is decompressed from any position equals the standard library's result for the whole file."""

from __future__ import annotations

import bz2
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from data_utils.text import bzip2
from data_utils.text.bzip2 import ends_properly, read_blocks


def in_parts(path: Path, part: int) -> bytes:
    """Return the file's content, with each part decompressed on its own."""
    blocks = []
    for start in range(0, path.stat().st_size, part):
        for starts_in_part, block in read_blocks(path, start, start + part):
            if not starts_in_part:
                break
            blocks.append(block)
    return b"".join(blocks)


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bz2.compress(noise(1_000_000)),
        lambda: bz2.compress(b"word " * 100_000 + noise(300_000), 1),
        lambda: b"".join(bz2.compress(noise(130_001, seed), 1 + seed) for seed in range(4)) + bz2.compress(b""),
        lambda: bz2.compress(b""),
        lambda: bz2.compress(b"x"),
    ],
    ids=["one stream", "small blocks", "streams of all levels", "empty", "one byte"],
)
@pytest.mark.parametrize("part", [10**9, 77_777])
def test_parts_are_the_whole(tmp_path: Path, make: Callable[[], bytes], part: int) -> None:
    path = tmp_path / "a.bz2"
    path.write_bytes(make())
    assert in_parts(path, part) == bz2.decompress(path.read_bytes())


def test_bits_that_look_like_the_start_of_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.bz2"
    path.write_bytes(bz2.compress(noise(1_500_000)))
    real = bzip2._marks
    lookalikes = [bzip2._Mark(1_000_003, True), bzip2._Mark(9_000_001, False)]

    def with_lookalikes(data: bytes, base: int) -> list[bzip2._Mark]:
        inside = [mark for mark in lookalikes if base < mark.bit < base + len(data) * 8]
        return sorted(real(data, base) + inside)

    monkeypatch.setattr(bzip2, "_marks", with_lookalikes)
    assert in_parts(path, 10**9) == noise(1_500_000)


def test_damage_and_ends(tmp_path: Path) -> None:
    data = bytearray(bz2.compress(noise(1_000_000)))
    assert ends_properly(bytes(data))
    assert not ends_properly(bytes(data[:-1]))
    assert not ends_properly(bytes(data) + b"more than the end")
    path = tmp_path / "a.bz2"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(EOFError, match="damaged or cut off"):
        in_parts(path, 10**9)
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(EOFError, match="damaged or cut off"):
        in_parts(path, 10**9)
