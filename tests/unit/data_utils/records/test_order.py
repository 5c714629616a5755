"""The order of samples: a permutation per epoch, computed for any positions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from data_utils.records.order import samples_at


@pytest.mark.parametrize("epoch", [0, 1, 3, 1000])
def test_each_epoch_is_a_permutation(epoch: int) -> None:
    for n in (*range(1, 131), 255, 256, 257, 1009, 4096, 10007, 65537):
        assert np.array_equal(np.sort(samples_at(7, epoch * n, n, n)), np.arange(n))


def test_slices_and_epochs_are_parts_of_one_order() -> None:
    whole = samples_at(5, 0, 1000, 37)
    for start, count in [(0, 1), (36, 2), (37, 37), (500, 500), (999, 1), (3, 0), (30, 10)]:
        assert np.array_equal(samples_at(5, start, count, 37), whole[start : start + count])
    assert samples_at(5, 8, 5, 10, shuffle=False).tolist() == [8, 9, 0, 1, 2]


def test_seeds_and_epochs_give_different_orders_and_the_same_ones_again() -> None:
    keys = list(itertools.product([0, 1, 2, -1, 2**63, 2**40], [0, 1, 2]))
    orders = {(seed, epoch): tuple(samples_at(seed, epoch * 200, 200, 200).tolist()) for seed, epoch in keys}
    assert len(set(orders.values())) == len(keys)
    assert orders == {(seed, epoch): tuple(samples_at(seed, epoch * 200, 200, 200).tolist()) for seed, epoch in keys}


def test_small_permutations_are_all_equally_likely() -> None:
    """The chi-square of the 24 orders of 4 samples has 23 degrees of freedom and exceeds 49.7 once in a thousand."""
    draws = 6000
    rows = samples_at(11, 0, 4 * draws, 4).reshape(draws, 4)
    _, seen = np.unique(rows, axis=0, return_counts=True)
    assert seen.size == 24
    expected = draws / 24
    assert ((seen - expected) ** 2 / expected).sum() < 49.7


def test_positions_are_uniform_and_independent_of_the_file_order() -> None:
    """The chi-square of the first tenth by tenths has 9 degrees of freedom: above 27.9 once in a thousand."""
    n = 100_003
    order = samples_at(3, 0, n, n)
    seen = np.histogram(np.flatnonzero(order < n // 10), bins=10, range=(0, n))[0]
    expected = (n // 10) / 10
    assert ((seen - expected) ** 2 / expected).sum() < 27.9
    # Correlations of a random order are about 1/sqrt(n) = 0.003.
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.012
    assert abs(np.corrcoef(order, np.arange(n))[0, 1]) < 0.012
    assert abs(np.corrcoef(order, samples_at(3, n, n, n))[0, 1]) < 0.012


def test_huge_data_sets_need_no_table() -> None:
    n = 10**12 + 39
    far = samples_at(1, 5 * n - 3, 6, n)
    assert far.shape == (6,) and len(set(far.tolist())) == 6 and far.min() >= 0 and far.max() < n
