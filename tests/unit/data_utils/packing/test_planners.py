"""The planners that choose among all possible packs: the fewest packs, as the exact search and the bound say."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.samples import histogram
from data_utils.packing.plan import ALGORITHMS, plan_packing
from tests.unit.data_utils.packing.test_plan_properties import random_histogram
from tests.unit.data_utils.packing.test_published_plans import ROWS


@pytest.mark.parametrize("seed", range(60))
def test_the_optimal_plan_is_the_best(seed: int) -> None:
    counts, size, limit = random_histogram(seed)
    plans = {name: plan_packing(counts, size, limit, name) for name in ALGORITHMS}
    best = plans["optimal"]
    assert best.number_of_packs == min(plan.number_of_packs for plan in plans.values())
    assert best.number_of_packs - best.fewest_packs <= 1
    # Two simple lower bounds on the number of packs.
    tokens = sum(length * number for length, number in enumerate(counts, 1))
    assert best.fewest_packs >= max(-(-tokens // size), -(-sum(counts) // limit))


def fewest_packs(sequences: tuple[int, ...], size: int, limit: int) -> int:
    """Find the minimum by trying everything: the longest sequence is in some pack, with some of the others."""

    def others(left: tuple[int, ...], tokens: int, most: int) -> Iterator[tuple[int, ...]]:
        yield left
        if most:
            for i, length in enumerate(left):
                if length <= tokens and (i == 0 or left[i - 1] != length):
                    yield from others(left[:i] + left[i + 1 :], tokens - length, most - 1)

    @functools.cache
    def fewest(left: tuple[int, ...]) -> int:
        if not left:
            return 0
        return 1 + min(fewest(rest) for rest in set(others(left[1:], size - left[0], limit - 1)))

    return fewest(tuple(sorted(sequences, reverse=True)))


@pytest.mark.parametrize("seed", range(40))
def test_small_sets_have_the_fewest_packs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, limit = int(rng.integers(4, 13)), int(rng.integers(2, 5))
    sequences = tuple(rng.integers(1, size + 1, int(rng.integers(1, 9))).tolist())
    counts = np.bincount(sequences, minlength=size + 1)[1:]
    plan = plan_packing(counts, size, limit, "optimal")
    exact = fewest_packs(sequences, size, limit)
    assert plan.fewest_packs <= exact
    assert plan.number_of_packs == exact


@pytest.mark.parametrize(("limit", "at_least"), [(3, 99.88), (4, 99.95), (8, 99.95), ("max", 99.95)])
def test_the_best_plan_reaches_its_bound(limit: int | str, at_least: float) -> None:
    counts = histogram()
    plan = plan_packing(counts, len(counts), limit, "optimal")
    assert 100 * plan.efficiency >= at_least
    assert plan.number_of_packs - plan.fewest_packs <= 1
    assert all(100 * plan.efficiency >= percent for _, most, percent, *_ in ROWS if most == limit)
