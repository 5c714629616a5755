"""The learning comparison's arithmetic: losses in equal windows of sequences seen."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.packed_learning import LIMIT, Curve, compare, summary


def curve(ends: list[float], losses: list[float]) -> Curve:
    return Curve(np.array(ends), np.array(losses))


def test_a_window_weighs_periods_by_what_of_them_lies_in_it() -> None:
    steps = curve([10, 20, 40], [8.0, 6.0, 4.0])
    assert steps.within(0, 10) == 8.0
    assert steps.within(5, 15) == 7.0
    assert steps.within(15, 40) == pytest.approx((5 * 6.0 + 20 * 4.0) / 25)


def test_periods_of_another_length_do_not_matter() -> None:
    fine = curve(list(range(10, 410, 10)), [9 - number / 40 for number in range(40)])
    coarse = curve(
        list(range(40, 440, 40)), [np.mean([9 - number / 40 for number in range(4 * k, 4 * k + 4)]) for k in range(10)]
    )
    assert max(compare(fine, coarse).deviations) < 1e-9


def test_the_worst_window_decides() -> None:
    flat = curve([50, 100], [5.0, 5.0])
    late = compare(flat, curve([50, 100], [5.0, 5.1]), windows=2)
    assert late.deviations == [pytest.approx(0), pytest.approx(0.02)]
    text = summary(1.9, late)
    assert "at most 2.00% apart: NOT within 1%" in text and LIMIT == 0.01
    assert "within 1%" in summary(1.9, compare(flat, flat)) and "NOT" not in summary(1.9, compare(flat, flat))
