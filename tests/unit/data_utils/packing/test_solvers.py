"""The knapsack equals an exhaustive search, and the least squares equal SciPy's for the matrix of all packs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import nnls

from data_utils.packing.solvers import IMPOSSIBLE, SHORT, SHORT_WEIGHT, best_packs, least_squares


def all_packs(size: int, limit: int, exact: bool) -> list[tuple[int, ...]]:
    packs = [
        pack
        for number in range(1, limit + 1)
        for pack in itertools.combinations_with_replacement(range(size, 0, -1), number)
        if sum(pack) <= size
    ]
    return [pack for pack in packs if sum(pack) == size] if exact else packs


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 9, 50])
@pytest.mark.parametrize("seed", range(4))
def test_best_pack_with_each_length(seed: int, limit: int, exact: bool) -> None:
    rng = np.random.default_rng(seed)
    size = 9
    values = rng.normal(size=size)
    unusable = rng.random(size) < (0.3 if seed else 0.0)
    values[unusable] = IMPOSSIBLE
    found = best_packs(values, limit, exact)
    packs = [p for p in all_packs(size, min(limit, size), exact) if not unusable[np.array(p) - 1].any()]
    for length in range(1, size + 1):
        sums = {pack: values[np.array(pack) - 1].sum() for pack in packs if length in pack}
        if not sums:
            assert found.pack_value[length - 1] < -1e200
            continue
        assert found.pack_value[length - 1] == pytest.approx(max(sums.values()), abs=1e-12)
        assert sums[found.pack(length)] == pytest.approx(max(sums.values()), abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_least_squares_over_all_packs(seed: int) -> None:
    size, limit = 12 + seed, 3
    target = np.random.default_rng(seed).integers(0, 1000, size).astype(float)
    weights = np.where(np.arange(size) < SHORT, SHORT_WEIGHT, 1.0)
    columns = {pack: np.bincount(pack, minlength=size + 1)[1:] for pack in all_packs(size, limit, exact=True)}
    uses = least_squares(target, limit)
    assert all(times > 0 for times in uses.values())
    reached = sum(times * columns[pack] for pack, times in uses.items())
    _, distance = nnls(weights[:, None] * np.array(list(columns.values()), float).T, weights * target)
    assert np.linalg.norm(weights * (reached - target)) == pytest.approx(distance, rel=1e-9, abs=1e-6)
