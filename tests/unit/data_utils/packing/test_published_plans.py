"""Plans for Wikipedia's lengths against the published table, and against the linear program over all packs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csc_matrix, hstack

from benchmarks.packing_plans import published
from benchmarks.samples import histogram
from data_utils.packing import PackingPlan, plan_packing

ROWS = published()["rows"]


def efficiency(plan: PackingPlan) -> float:
    """Efficiency in percent from packs and repeats alone."""
    tokens = sum(times * sum(pack) for pack, times in zip(plan.packs, plan.repeats))
    return 100 * tokens / (512 * sum(plan.repeats))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['algorithm']}-{row['max_sequences_per_pack']}")
def test_row_is_reproduced(row: dict[str, Any]) -> None:
    counts = histogram()
    plan = plan_packing(counts, len(counts), row["max_sequences_per_pack"], row["algorithm"])
    assert efficiency(plan) == pytest.approx(row["efficiency_percent"], abs=0.01)
    assert plan.packing_factor == pytest.approx(row["packing_factor"], abs=6e-4)
    if row["packs_millions"] is not None:
        assert sum(plan.repeats) / 1e6 == pytest.approx(row["packs_millions"], abs=2e-3)


@pytest.mark.parametrize(("limit", "at_least"), [(3, 99.88), (4, 99.95), (8, 99.95), ("max", 99.95)])
def test_the_best_plan_reaches_its_bound(limit: int | str, at_least: float) -> None:
    counts = histogram()
    plan = plan_packing(counts, len(counts), limit, "optimal")
    assert efficiency(plan) >= at_least
    assert plan.number_of_packs - plan.fewest_packs <= 1
    published_best = [row for row in ROWS if row["max_sequences_per_pack"] == limit]
    assert all(efficiency(plan) >= row["efficiency_percent"] for row in published_best)


def all_packs(size: int) -> np.ndarray:
    """Return every pack of at most three sequences that fills the length, (N, 3); 0 where there are fewer."""
    pairs = [(first, size - first, 0) for first in range(1, size // 2 + 1)]
    triples = [
        (first, second, size - first - second)
        for first in range(1, size // 3 + 1)
        for second in range(first, (size - first) // 2 + 1)
    ]
    return np.array([(size, 0, 0), *pairs, *triples])


def test_no_plan_of_three_sequences_is_better() -> None:
    """The program over every pack of three, its duals checked pair by pair: 99.8838 % is the most there can be.

    Packs that fill the length suffice if a shorter sequence may replace a longer one.
    """
    counts = histogram()
    size = len(counts)
    packs = all_packs(size)
    rows, columns = packs.T.ravel() - 1, np.tile(np.arange(len(packs)), 3)
    real = rows >= 0
    holds = csc_matrix((np.ones(real.sum()), (rows[real], columns[real])), (size, len(packs)))
    step = np.arange(size - 1)
    ends = np.ones(size - 1)
    shorter = csc_matrix((np.r_[-ends, ends], (np.r_[step + 1, step], np.r_[step, step])), (size, size - 1))
    demand = np.array(counts) / 1e4
    cost = np.r_[np.ones(len(packs)), np.zeros(size - 1)]
    solved = linprog(cost, A_ub=-hstack([holds, shorter]).tocsc(), b_ub=-demand, method="highs")

    value = np.maximum.accumulate(np.r_[0.0, -solved.ineqlin.marginals])  # of a sequence of at most this length
    rest = size - np.add.outer(np.arange(size + 1), np.arange(size + 1))
    together = np.where(rest >= 0, np.add.outer(value, value) + value[np.maximum(rest, 0)], 0.0)
    fewest = value[1:] @ demand * 1e4 / together.max()

    plan = plan_packing(counts, len(counts), 3, "optimal")
    assert fewest <= plan.number_of_packs <= fewest + 2
    assert plan.fewest_packs == pytest.approx(fewest, abs=2)
    assert 99.883 < 100 * sum((i + 1) * n for i, n in enumerate(counts)) / size / fewest < 99.884
