"""Compares packing plans with the published ones: ``python -m benchmarks.packing_plans``.

Packs the lengths of Wikipedia's sequences by every algorithm, and prints efficiency and run time with the published
values for the same lengths. The published times come from another machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import measuring
from benchmarks.measuring import NOTHING
from benchmarks.samples import histogram
from data_utils.packing import PackingPlan, plan_packing

PUBLISHED = Path(__file__).parent / "data" / "published_packing.json"
UNLIMITED = "max"
OURS = (("lpfhp", 3), ("lpfhp", UNLIMITED), *(("optimal", limit) for limit in (2, 3, 4, 8, 16, UNLIMITED)))
PROCESSOR = "processor_seconds"


def published() -> dict[str, Any]:
    """Return the published rows and run times."""
    return json.loads(PUBLISHED.read_text(encoding="utf-8"))


@measuring.benchmark({}, rounds=5)
def main(options: argparse.Namespace) -> list[str]:
    counts, facts = histogram(), published()
    known = {(row["algorithm"], row["max_sequences_per_pack"]): row for row in facts["rows"]}
    plans: dict[Any, PackingPlan] = {}

    def make(variant: tuple[str, Any]) -> measuring.Values:
        begin = time.process_time()
        plans[variant] = plan_packing(counts, len(counts), variant[1], variant[0])
        return {PROCESSOR: time.process_time() - begin}

    variants = {variant: partial(make, variant) for variant in (*known, *OURS)}
    measured = measuring.alternate(variants, options.rounds, quiet=True)
    head = ["algorithm, most sequences", "published %", "here %", "packs", "proven minimum"]
    table = [[*head, "published s", "processor s"]]
    for variant, plan in plans.items():
        row = known.get(variant)
        before = facts["run_time_seconds"].get(variant[0]) if row else None
        table.append(
            [
                f"{variant[0]}, {variant[1]}",
                f"{row['efficiency_percent']:g}" if row else NOTHING,
                f"{100 * plan.efficiency:.4f}",
                f"{plan.number_of_packs:,}",
                f"{plan.fewest_packs:,}",
                f"{before:g}" if before else NOTHING,
                measuring.spread(measured.values(variant, PROCESSOR), "{:.4f}"),
            ]
        )
    return [f"One thread; median (min–max) of {options.rounds} rounds.", measuring.markdown(table)]


if __name__ == "__main__":
    sys.exit(main())
