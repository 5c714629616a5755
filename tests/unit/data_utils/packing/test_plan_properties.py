"""Properties of every plan, for any lengths, and of the sequences that fill its packs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from data_utils.packing.assignment import fill_packs, histogram
from data_utils.packing.plan import ALGORITHMS, PackingPlan, plan_packing


def check(plan: PackingPlan, counts: list[int], size: int, limit: int) -> None:
    """Check that each sequence is in one pack, that packs obey their limits, and the plan's figures."""
    counted = [0] * size
    tokens = 0
    for pack, times in zip(plan.packs, plan.repeats, strict=True):
        assert times >= 1
        assert 1 <= len(pack) <= limit
        assert sum(pack) <= size
        assert list(pack) == sorted(pack, reverse=True)
        for length in pack:
            counted[length - 1] += times
        tokens += times * sum(pack)
    assert counted == (list(counts) + [0] * size)[:size]
    assert len(set(plan.packs)) == len(plan.packs)
    packs = sum(plan.repeats)
    assert plan.efficiency == (pytest.approx(tokens / (packs * size), rel=1e-12) if packs else 1.0)
    assert plan.packing_factor == (pytest.approx(sum(counts) / packs, rel=1e-12) if packs else 1.0)
    assert plan.fewest_packs <= packs


def random_histogram(seed: int) -> tuple[list[int], int, int]:
    """Return counts, pack length and limit of some kind: dense, sparse, one length, all short, all long, huge."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 50))
    lengths = np.arange(size)
    most = int(rng.choice([2, 20, 10**9]))
    counts = rng.integers(0, most, size)
    chosen = [
        lengths >= 0,
        rng.random(size) < 0.2,
        lengths == rng.integers(size),
        lengths < max(1, size // 6),
        lengths >= size - max(1, size // 6),
    ][seed % 5]
    limit = int(rng.choice([1, 2, 3, 5, size, 10**6]))
    return (counts * chosen).tolist(), size, limit


@pytest.mark.parametrize("seed", range(60))
def test_every_plan_is_complete(seed: int) -> None:
    counts, size, limit = random_histogram(seed)
    for name in ALGORITHMS:
        plan = plan_packing(counts, size, limit, name)
        check(plan, counts, size, limit)
        assert plan == plan_packing(np.array(counts), size, limit, name)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
class TestSpecialCases:
    def test_nothing_to_pack(self, algorithm: str) -> None:
        for counts in ([], [0, 0, 0]):
            plan = plan_packing(counts, 3, 2, algorithm)
            assert (plan.packs, plan.repeats, plan.efficiency, plan.packing_factor) == ((), (), 1.0, 1.0)

    def test_more_tokens_than_64_bits(self, algorithm: str) -> None:
        counts = [10**18, 10**18 + 1, 7, 10**18]
        check(plan_packing(counts, 4, 3, algorithm), counts, 4, 3)

    def test_fewer_and_more_counts_than_lengths(self, algorithm: str) -> None:
        assert plan_packing([4], 8, 2, algorithm).number_of_sequences == 4
        assert plan_packing([4, 0, 0, 0], 2, 2, algorithm).number_of_sequences == 4


def test_importing_is_cheap() -> None:
    heavy = ("scipy", "tensorflow", "matplotlib", "distributed", "tokenizers")
    code = (
        f"import sys; from data_utils.packing.plan import plan_packing; print([m for m in {heavy} if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("seed", range(5))
def test_each_sequence_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, limit = 40, 4
    lengths = rng.integers(1, size + 1, 500).astype(np.uint16)
    plan = plan_packing(histogram(lengths, size), size, limit, "lpfhp")
    packs = fill_packs(plan, lengths, seed)
    assert packs.number == plan.number_of_packs
    chosen = rng.permutation(packs.number)
    sequences, sizes = packs.select(chosen)
    assert sorted(sequences.tolist()) == list(range(500))
    pack = np.repeat(chosen, sizes)
    assert np.bincount(pack).max() <= limit
    assert np.bincount(pack, lengths[sequences]).max() <= size
    one, (amount,) = packs.select(chosen[-1:])  # any pack can be computed alone
    assert one.tolist() == sequences[-amount:].tolist()


def test_the_seed_decides_partners() -> None:
    lengths = np.full(400, 5)
    plan = plan_packing(histogram(lengths, 10), 10, 2, "lpfhp")
    orders = []
    for seed in (1, 2, 1):
        packs = fill_packs(plan, lengths, seed)
        orders.append(packs.select(np.arange(packs.number))[0])
    assert np.array_equal(orders[0], orders[2])
    pairs = [set(map(frozenset, order.reshape(-1, 2).tolist())) for order in orders]
    assert len(pairs[0] & pairs[1]) < 20
