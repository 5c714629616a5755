"""Plans of packing beside the published ones: ``python -m benchmarks.packing_plans``.

Packs the lengths of Wikipedia's sequences by every algorithm, and prints efficiency and run time beside what was
published for the same lengths. The published times come from another machine; ``--solver`` measures on this one how
long the published way of NNLSHP takes, a general solver over all 22,102 packs.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import measuring
from benchmarks.samples import histogram
from data_utils.packing import PackingPlan, plan_packing

PUBLISHED = Path(__file__).parent / "data" / "published_packing.json"
UNLIMITED = "max"
OURS = (("lpfhp", 3), ("lpfhp", UNLIMITED), *(("optimal", limit) for limit in (2, 3, 4, 8, 16, UNLIMITED)))
QUICK_SECONDS = 0.1  # plans that take less are made more often


class Timed(NamedTuple):
    """A plan and how long it took to make: medians, in seconds of the clock and of the processor."""

    plan: PackingPlan
    clock: float
    processor: float


def published() -> dict[str, Any]:
    """Return rows and run times as published."""
    return json.loads(PUBLISHED.read_text(encoding="utf-8"))


def timed(make: Callable[[], PackingPlan], repeats: int) -> Timed:
    """Make a plan a few times, more often where that is quick."""
    clock: list[float] = []
    processor: list[float] = []
    while len(clock) < repeats or (clock[0] < QUICK_SECONDS and len(clock) < 10 * repeats):
        begin = time.perf_counter(), time.process_time()
        plan = make()
        clock.append(time.perf_counter() - begin[0])
        processor.append(time.process_time() - begin[1])
    return Timed(plan, statistics.median(clock), statistics.median(processor))


def all_packs(size: int) -> np.ndarray:
    """Return every pack of at most three sequences that fills the length, (N, 3); 0 where there are fewer."""
    pairs = [(first, size - first, 0) for first in range(1, size // 2 + 1)]
    triples = [
        (first, second, size - first - second)
        for first in range(1, size // 3 + 1)
        for second in range(first, (size - first) // 2 + 1)
    ]
    return np.array([(size, 0, 0), *pairs, *triples])


def general_solver_seconds(counts: Sequence[int], short: int = 8, short_weight: float = 0.09) -> float:
    """Return how long SciPy's least squares take over the matrix of all packs of at most three sequences."""
    from scipy.optimize import nnls

    size = len(counts)
    weights = np.ones(size)
    weights[:short] = short_weight
    packs = all_packs(size)
    matrix = np.zeros((size + 1, len(packs)))
    for column in packs.T:
        np.add.at(matrix, (column, np.arange(len(packs))), 1.0)
    begin = time.perf_counter()
    nnls(weights[:, None] * matrix[1:], weights * np.array(counts, float))
    return time.perf_counter() - begin


def rows_of(repeats: int) -> list[list[str]]:
    """Return the table, header first."""
    counts, facts = histogram(), published()
    size = len(counts)
    known = {(row["algorithm"], row["max_sequences_per_pack"]): row for row in facts["rows"]}
    table = [
        ["algorithm", "sequences at most", "published %", "here %", "packs", "fewest proven", "factor",
         "published s", "here s", "of processor", "times faster"],
    ]  # fmt: skip
    for algorithm, limit in (*known, *OURS):
        row = known.get((algorithm, limit))
        result = timed(lambda name=algorithm, most=limit: plan_packing(counts, size, most, name), repeats)
        plan, before = result.plan, facts["run_time_seconds"].get(algorithm) if row else None
        table.append(
            [
                algorithm,
                str(limit),
                f"{row['efficiency_percent']:g}" if row else measuring.NOTHING,
                f"{100 * plan.efficiency:.4f}",
                f"{plan.number_of_packs:,}",
                f"{plan.fewest_packs:,}",
                f"{plan.packing_factor:.4f}",
                f"{before:g}" if before else measuring.NOTHING,
                f"{result.clock:.4f}",
                f"{result.processor:.4f}",
                f"{before / result.clock:.0f}" if before else measuring.NOTHING,
            ]
        )
    return table


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = measuring.parser_of("packing_plans", __doc__)
    parser.add_argument("--repeats", type=int, default=5, help="of each plan; medians are shown (default %(default)s)")
    parser.add_argument("--solver", action="store_true", help="time a general solver over all packs as well (a minute)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all plans, and print the table."""
    options = parse(arguments)
    measuring.print_report(
        f"SciPy {importlib.metadata.version('scipy')}, one thread", measuring.markdown(rows_of(options.repeats))
    )
    if options.solver:
        counts = histogram()
        ours = timed(lambda: plan_packing(counts, len(counts), 3, "nnlshp"), options.repeats).clock
        theirs = general_solver_seconds(counts)
        print(
            f"nnlshp here {ours:.2f} s; SciPy's nnls over all packs {theirs:.1f} s: {theirs / ours:.0f} times as long"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
