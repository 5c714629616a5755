"""Plans for Wikipedia's lengths against the published table."""

from __future__ import annotations

import pytest

from benchmarks.samples import histogram
from data_utils.packing.plan import plan_packing

# Algorithm, most sequences in a pack, % of real tokens, million packs, packing factor: arXiv 2107.02027; the row of
# lpfhp is the example output of the code that was published with it.
ROWS = [
    ("spfhp", 1, 49.97, 16.28, 1.0),
    ("spfhp", 2, 80.52, 10.102, 1.612),
    ("spfhp", 3, 89.44, 9.095, 1.79),
    ("nnlshp", 3, 99.75, 8.155, 1.996),  # room: planners
    ("spfhp", 4, 93.94, 8.659, 1.88),
    ("spfhp", 8, 98.9, 8.225, 1.979),
    ("lpfhp", 12, 99.8129, None, 1.99758),
    ("spfhp", 16, 99.6, 8.168, 1.993),
]


@pytest.mark.parametrize(("algorithm", "limit", "percent", "millions", "factor"), ROWS)
def test_row_is_reproduced(algorithm: str, limit: int, percent: float, millions: float | None, factor: float) -> None:
    counts = histogram()
    plan = plan_packing(counts, len(counts), limit, algorithm)
    assert 100 * plan.efficiency == pytest.approx(percent, abs=0.01)
    assert plan.packing_factor == pytest.approx(factor, abs=6e-4)
    if millions is not None:
        assert sum(plan.repeats) / 1e6 == pytest.approx(millions, abs=2e-3)
