"""The bound of a pipeline's speed, and what is printed of a ratio above it."""

from __future__ import annotations

import pytest

from benchmarks.measuring import Measured
from benchmarks.pipeline import BOUND, DOUBLED, SECONDS, above_bounds, doubled, shortest
from execution.software.pipeline.schedule import BACKWARD, FORWARD


def measured_of(ratio: float, share: float) -> Measured:
    measured = Measured()
    for name, seconds in (("sequential", ratio), ("grouped", 1.0), ("interleaved", ratio)):
        measured.add(name, {SECONDS: seconds, BOUND: 1.7, DOUBLED: share if name == "grouped" else 0.0})
    return measured


def test_bounds_follow_from_the_lengths_of_the_jobs_in_sequence():
    """Jobs of 1, 3 and 3 seconds. Grouped: 1 + 3 to fill, 14 × 4 for the first stage, and 3 + 3 to drain."""
    jobs = [((FORWARD, 0), 0.0, 1.0), ((BACKWARD, 1), 1.0, 4.0), ((BACKWARD, 0), 4.0, 7.0)]
    assert shortest(jobs, 16) == {"sequential": 16 * 7.0, "grouped": 66.0, "interleaved": 1.0 + 15 * 6.0 + 6.0}


def test_two_jobs_at_once_are_seen():
    jobs = [((FORWARD, 0), 0.0, 1.0), ((BACKWARD, 0), 0.5, 4.0), ((BACKWARD, 1), 0.0, 5.0)]
    assert doubled(jobs) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "ratio, share, expected",
    [
        (1.65, 0.1, []),
        (1.78, 0.1, ["raises the bound to 1.87."]),
        (1.78, 0.0, ["raises the bound to 1.70; the rest is noise"]),
        (2.05, 0.5, ["raises the bound to 2.00; the rest is noise"]),
    ],
)
def test_a_ratio_above_the_bound_is_explained(ratio, share, expected):
    found = above_bounds(measured_of(ratio, share))
    assert len(found) == len(expected)
    assert all(text.startswith(f"grouped: {ratio:.2f} × is above the bound of 1.70") for text in found)
    assert all(words in text for words, text in zip(expected, found))
