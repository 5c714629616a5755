"""Every record gets exactly one pack, and packs have the planned lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data_utils.packing import assignment as module
from data_utils.packing import plan_packing
from data_utils.packing.assignment import Assignment, assign, histogram, list_by_length, most_in_a_pack


def assigned(lengths: np.ndarray, size: int, limit: int, seed: int, folder: Path) -> Assignment:
    counts = histogram(lengths, size)
    plan = plan_packing(counts, size, limit, "lpfhp")
    path = folder / f"list_{seed}.npy"
    list_by_length(lengths, counts, seed, path)
    return assign(plan, path, seed)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_each_record_once(seed: int, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    rng = np.random.default_rng(seed)
    size, limit = 40, 4
    lengths = rng.integers(1, size + 1, 500).astype(np.uint16)
    result = assigned(lengths, size, limit, seed, tmp_path)
    packs = result.shuffled(0, result.packs)
    assert sorted(packs.tolist()) == list(range(result.packs))
    records, sizes = result.select_records(packs)
    assert sorted(records.tolist()) == list(range(500))
    packs = np.repeat(np.arange(result.packs), sizes)
    assert np.bincount(packs).max() <= limit
    assert np.bincount(packs, lengths[records]).max() <= size
    amounts = rng.integers(0, 9, 500)
    assert most_in_a_pack(result, amounts) == np.bincount(packs, amounts[records]).max()


def test_the_seed_decides_partners_and_order(tmp_path: Path) -> None:
    lengths = np.full(400, 5)
    orders = []
    for seed in (1, 2, 1):
        result = assigned(lengths, 10, 2, seed, tmp_path)
        orders.append(result.select_records(result.shuffled(0, result.packs))[0])
    assert np.array_equal(orders[0], orders[2])
    pairs = [set(map(frozenset, order.reshape(-1, 2).tolist())) for order in orders]
    assert len(pairs[0] & pairs[1]) < 20
    assert np.mean(np.diff(orders[0].reshape(-1, 2)[:, 0]) > 0) == pytest.approx(0.5, abs=0.15)  # mixed
