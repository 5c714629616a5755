"""The arithmetic of packs beside padded sequences: losses in equal windows of sequences seen."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.learning import PACKED, PACKED_LIMIT, PADDED, LossBySequences, deviations, in_windows, summary_of_packs


def curve(ends: list[float], losses: list[float]) -> LossBySequences:
    return LossBySequences(np.array(ends), np.array(losses))


def apart(padded: LossBySequences, packed: LossBySequences, windows: int = 10) -> list[float]:
    _, curves = in_windows(padded, packed, windows)
    return deviations(curves[PACKED], curves[PADDED])


def test_a_window_weighs_periods_by_their_part_inside_it() -> None:
    steps = curve([10, 20, 40], [8.0, 6.0, 4.0])
    assert steps.within(0, 10) == 8.0
    assert steps.within(5, 15) == 7.0
    assert steps.within(15, 40) == pytest.approx((5 * 6.0 + 20 * 4.0) / 25)


def test_periods_of_another_length_do_not_matter() -> None:
    fine = curve(list(range(10, 410, 10)), [9 - number / 40 for number in range(40)])
    coarse = curve(
        list(range(40, 440, 40)), [np.mean([9 - number / 40 for number in range(4 * k, 4 * k + 4)]) for k in range(10)]
    )
    assert max(apart(fine, coarse)) < 1e-9


def test_the_worst_window_decides() -> None:
    flat, late = curve([50, 100], [5.0, 5.0]), curve([50, 100], [5.0, 5.1])
    assert apart(flat, late, windows=2) == [pytest.approx(0), pytest.approx(0.02)]
    text, reached = summary_of_packs(1.9, *in_windows(flat, late, windows=2))
    assert "at most 2.00% apart: NOT within 1%" in text and PACKED_LIMIT == 0.01 and not reached
    text, reached = summary_of_packs(1.9, *in_windows(flat, flat))
    assert "within 1%" in text and "NOT" not in text and reached
