"""The bound of a pipeline's speed."""

from __future__ import annotations

import pytest

from benchmarks.pipeline import doubled, shortest
from pipeline.schedule import BACKWARD, FORWARD


def test_bounds_follow_from_the_lengths_of_the_jobs_in_sequence():
    """Jobs of 1, 3 and 3 seconds. Grouped: 1 + 3 to fill, 14 × 4 for the first stage, and 3 + 3 to drain."""
    jobs = [((FORWARD, 0), 0.0, 1.0), ((BACKWARD, 1), 1.0, 4.0), ((BACKWARD, 0), 4.0, 7.0)]
    assert shortest(jobs, 16) == {"sequential": 16 * 7.0, "grouped": 66.0, "interleaved": 1.0 + 15 * 6.0 + 6.0}


def test_two_jobs_at_once_are_seen():
    jobs = [((FORWARD, 0), 0.0, 1.0), ((BACKWARD, 0), 0.5, 4.0), ((BACKWARD, 1), 0.0, 5.0)]
    assert doubled(jobs) == pytest.approx(0.1)
