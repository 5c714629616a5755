"""The two passes of the shuffle keep every record once, and the order does not depend on the division of work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data_utils.text.shuffle import Layout, Shuffled, gather, plan_layout, read_pieces, read_strip, write_spill
from utilities.errors import UserError


def records(count: int, seed: int = 0) -> Shuffled:
    rng = np.random.default_rng(seed)
    keys = rng.integers(2**64, size=count, dtype=np.uint64)
    keys[: count // 4] = keys[:1]  # equal keys keep their order
    return Shuffled(keys, [rng.bytes(rng.integers(1, 99)) for _ in range(count)])


@pytest.mark.parametrize("layout", [Layout(1, 1), Layout(7, 1), Layout(3, 4), Layout(200, 1), Layout(1, 50)])
def test_the_order_does_not_depend_on_the_layout(tmp_path: Path, layout: Layout) -> None:
    units = [records(count, seed) for seed, count in enumerate((100, 0, 1, 57))]
    paths = [tmp_path / f"{number}.spill" for number in range(len(units))]
    for number, (path, unit) in enumerate(zip(paths, units, strict=True)):
        write_spill(path, unit, np.arange(9) * number, layout)
    result: list[bytes] = []
    files = []
    for strip in range(layout.strips):
        for number, part in gather(paths, strip, layout):
            files.append(number)
            result += map(bytes, part.records)
            assert (layout.file_number(part.keys) == number).all()
    assert files == list(range(layout.files))
    everything = [record for unit in units for record in unit.records]
    order = np.argsort(np.concatenate([unit.keys for unit in units]), kind="stable")
    assert result == [everything[row] for row in order]
    assert sum(read_pieces(path, layout, 9) for path in paths).tolist() == [6 * n for n in range(9)]


def test_a_damaged_spill_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "0.spill"
    write_spill(path, records(40), np.zeros(3), Layout(2, 1))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert read_strip(path, 0).keys.size
    with pytest.raises(UserError, match="changed or damaged"):
        read_strip(path, 1)


def test_files_and_strips_are_of_bounded_size() -> None:
    assert plan_layout(8, 10 << 20, 5) == Layout(8, 1)
    for units, text, passes in ((4000, 16 << 30, 5), (4000, 16 << 30, 40), (100, 300 << 20, 1), (1, 1000, 1)):
        layout = plan_layout(units, text, passes)
        assert layout.files >= units
        assert text * passes / layout.files <= 24 << 20
        assert text * passes / layout.strips <= 96 << 20
