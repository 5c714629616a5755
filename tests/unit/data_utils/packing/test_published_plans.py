"""Plans for Wikipedia's lengths against the published table."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.packing_plans import published
from benchmarks.samples import histogram
from data_utils.packing import plan_packing

ROWS = published()["rows"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['algorithm']}-{row['max_sequences_per_pack']}")
def test_row_is_reproduced(row: dict[str, Any]) -> None:
    counts = histogram()
    plan = plan_packing(counts, len(counts), row["max_sequences_per_pack"], row["algorithm"])
    assert 100 * plan.efficiency == pytest.approx(row["efficiency_percent"], abs=0.01)
    assert plan.packing_factor == pytest.approx(row["packing_factor"], abs=6e-4)
    if row["packs_millions"] is not None:
        assert sum(plan.repeats) / 1e6 == pytest.approx(row["packs_millions"], abs=2e-3)


@pytest.mark.parametrize(("limit", "at_least"), [(3, 99.88), (4, 99.95), (8, 99.95), ("max", 99.95)])
def test_the_best_plan_reaches_its_bound(limit: int | str, at_least: float) -> None:
    counts = histogram()
    plan = plan_packing(counts, len(counts), limit, "optimal")
    assert 100 * plan.efficiency >= at_least
    assert plan.number_of_packs - plan.fewest_packs <= 1
    published_best = [row for row in ROWS if row["max_sequences_per_pack"] == limit]
    assert all(100 * plan.efficiency >= row["efficiency_percent"] for row in published_best)
