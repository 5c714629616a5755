"""The two passes of the shuffle: nothing lost, nothing doubled, one order however the work is divided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data_utils.text.columns import (
    Columns,
    bytes_of,
    concatenated,
    from_bytes,
    take,
    to_bytes,
    to_columns,
    to_features,
    token_type,
)

from data_utils.text.shuffle import Layout, gather, plan_layout, read_pieces, read_strip, write_spill
from utilities.errors import UserError

SEQUENCE, PREDICTIONS, VOCABULARY = 24, 4, 70_000
TOKEN = token_type(VOCABULARY)


def records(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Features of random records, of every length and number of predictions."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, SEQUENCE + 1, count)[:, None]
    counts = rng.integers(0, PREDICTIONS + 1, count)[:, None]
    place, slot = np.arange(SEQUENCE), np.arange(PREDICTIONS)
    real, used = place < lengths, slot < counts
    return {
        "input_ids": np.where(real, rng.integers(0, VOCABULARY, real.shape), 0),
        "input_mask": real.astype(int),
        "segment_ids": (real & (place >= lengths // 2)).astype(int),
        "masked_lm_positions": np.where(used, rng.integers(1, 5, used.shape), 0),
        "masked_lm_ids": np.where(used, rng.integers(0, VOCABULARY, used.shape), 0),
        "masked_lm_weights": used.astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, (count, 1)),
    }


def columns(count: int, seed: int = 0) -> Columns:
    keys = np.random.default_rng([seed, 1]).integers(2**64, size=count, dtype=np.uint64)
    return to_columns(records(count, seed), keys, TOKEN)


def test_columns_hold_the_features() -> None:
    features = records(50)
    found = to_features(to_columns(features, np.zeros(50, np.uint64), TOKEN), SEQUENCE, PREDICTIONS)
    assert list(found) == list(features)
    for name, values in features.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_columns_as_bytes_and_in_any_order() -> None:
    one = columns(30)
    data = to_bytes(one)
    assert len(data) == bytes_of(one.size, TOKEN)
    assert all(map(np.array_equal, from_bytes(data, one.size, TOKEN), one))
    order = np.random.default_rng(3).permutation(30)[:20]
    mixed, original = (to_features(part, SEQUENCE, PREDICTIONS) for part in (take(one, order), one))
    for name, values in mixed.items():
        np.testing.assert_array_equal(values, original[name][order])


@pytest.mark.parametrize("layout", [Layout(1, 1), Layout(7, 1), Layout(3, 4), Layout(200, 1), Layout(1, 50)])
def test_one_order_however_the_keys_are_divided(tmp_path: Path, layout: Layout) -> None:
    units = [columns(count, seed) for seed, count in enumerate((100, 0, 1, 57))]
    paths = [tmp_path / f"{number}.spill" for number in range(len(units))]
    for number, (path, unit) in enumerate(zip(paths, units, strict=True)):
        write_spill(path, unit, np.arange(9) * number, layout)
    found, files = [], []
    for strip in range(layout.strips):
        for number, part in gather(paths, strip, layout, TOKEN):
            files.append(number)
            found.append(part)
            assert (layout.file_of(part.keys) == number).all()
    assert files == list(range(layout.files))
    everything = concatenated(units)
    expected = take(everything, np.argsort(everything.keys, kind="stable"))
    assert all(map(np.array_equal, concatenated(found), expected))
    assert sum(read_pieces(path, layout, 9) for path in paths).tolist() == [6 * n for n in range(9)]


def test_a_damaged_spill_is_noticed(tmp_path: Path) -> None:
    layout = Layout(2, 1)
    path = tmp_path / "0.spill"
    write_spill(path, columns(40), np.zeros(3), layout)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert read_strip(path, 0, TOKEN).keys.size
    with pytest.raises(UserError, match="changed or damaged"):
        read_strip(path, 1, TOKEN)


def test_files_and_strips_are_of_bounded_size() -> None:
    assert plan_layout(8, 10 << 20, 5) == Layout(8, 1)
    for units, text, passes in ((4000, 16 << 30, 5), (4000, 16 << 30, 40), (100, 300 << 20, 1), (1, 1000, 1)):
        layout = plan_layout(units, text, passes)
        assert layout.files >= units
        assert text * passes / layout.files <= 24 << 20
        assert text * passes / layout.strips <= 96 << 20
