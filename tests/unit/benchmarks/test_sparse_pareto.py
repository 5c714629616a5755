"""The arithmetic of the sparse study: all runs spend the same operations."""

from __future__ import annotations

import pytest

from benchmarks.sparse_pareto import METHODS, WIDTHS, Run, sparse_learning_rate

FLOPS = 2e12


def run(width: str = "tiny", method: str = "dense", rate: float = 1e-3) -> Run:
    return Run(width, method, rate, FLOPS, data="data")


def test_all_spend_the_same_operations_in_whole_logging_periods() -> None:
    for width in WIDTHS:
        for method in METHODS:
            of_kind = run(width, method)
            update = 32 * of_kind.per_sequence + of_kind.per_search / 44
            assert of_kind.updates % 5 == 0 and abs(of_kind.updates * update - FLOPS) <= 2.51 * update
    assert run(method="rigl").updates < run(method="set").updates == run(method="static").updates
    # By hand, tiny: 2 layers of 4 · 128² + 8 · 128² weights; a tenth of the 16×16 blocks is 6, 19 and 26 of 2 kinds.
    kept, whole, rest = 2 * 256 * 77, 2 * 12 * 128**2, run().per_sequence - 6 * 128 * 2 * 12 * 128**2
    sparse = run(method="rigl")
    assert sparse.per_sequence == 6 * 128 * kept + rest
    assert sparse.per_search == 32 * (rest + 4 * 128 * kept + 2 * 128 * whole)  # two sparse products and a whole one


def test_sparse_models_learn_faster_by_the_published_rule() -> None:
    assert sparse_learning_rate(2.18e-4, 0.9) == pytest.approx(1.4e-3, rel=0.01)  # as published for BERT-Medium
    assert sparse_learning_rate(1e-3, 0.0) == 1e-3
