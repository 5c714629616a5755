"""Divergence is detected: NaN, infinity, and a loss far above the median of earlier ones."""

from __future__ import annotations

import math

import pytest

from keras_extensions.listeners.reporting import Period
from keras_extensions.listeners.safeguards import (
    CONSECUTIVE_PERIODS,
    MAX_CONSECUTIVE_OVERFLOWS,
    MIN_PERIODS,
    DivergenceError,
    OverflowCounter,
    StopOnDivergence,
)
from utilities.errors import UserError

LOSSES = ("mlm_loss", "nsp_loss")


def period(step: int, mlm: float, nsp: float = 0.5, **others: float) -> Period:
    return Period(step, 1000, 4, 8 * step, 1.0, 8.0, False, None, None, {"mlm_loss": mlm, "nsp_loss": nsp, **others})


def explode(guard: StopOnDivergence, mlm: float) -> None:
    for step in range(CONSECUTIVE_PERIODS):
        guard.period(period(step, mlm))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_divergence(value):
    guard = StopOnDivergence(LOSSES)
    guard.period(period(4, 7.0, mlm_accuracy=math.nan))  # an accuracy of NaN, over no samples, is not a divergence
    with pytest.raises(DivergenceError) as caught:
        guard.period(period(8, 7.0, value))
    assert (caught.value.step, caught.value.updates) == (8, 4)
    assert isinstance(caught.value, UserError)
    assert "nsp_loss" in str(caught.value) and "step 8" in str(caught.value)


def test_loss_far_above_the_median_is_divergence():
    guard = StopOnDivergence(LOSSES, ratio=3.0)
    for step in range(MIN_PERIODS):
        guard.period(period(step, 3.5 if step == 0 else 1.5))  # too few periods, and a median ignores outliers
    guard.period(period(50, 5.4))  # 5.9 < 3 × 2.0
    guard.period(period(51, 5.6))
    guard.period(period(55, 5.6))
    with pytest.raises(DivergenceError, match=r"loss is 6\.1, .*median .* 2") as caught:
        guard.period(period(59, 4.6, 1.5))
    assert caught.value.updates == 12, "all three periods may have caused it"


def test_outliers_are_not_divergence():
    """The loss of a batch of 30 samples, after a first loss of 0.69 = ln 2 with two classes."""
    guard = StopOnDivergence(LOSSES, ratio=3.0, before=[(4, 0.69), *[(4, 0.2)] * 100])
    for step in range(0, 40, 4):
        guard.period(period(step, 0.3 if step % 3 else -0.2))  # 0.8 twice, then 0.3


def test_losses_below_the_first_one_are_not_divergence():
    guard = StopOnDivergence(LOSSES, ratio=3.0, before=[(4, 0.9), *[(4, 0.01)] * 200])
    for step in range(CONSECUTIVE_PERIODS):
        guard.period(period(step, 0.3))  # 0.8 is 80 times the median
    with pytest.raises(DivergenceError):
        explode(guard, 0.5)


def test_large_losses_are_accepted_without_a_ratio():
    explode(StopOnDivergence(LOSSES, before=[(4, 2.0)] * 50), 1e9)


def test_a_resumed_run_diverges_where_an_uninterrupted_one_does():
    """At each possible resume, including those between exploding periods, which do not raise the median."""
    losses = [3.0, *[1.0] * 8, 9.0, 9.0, 1.0, *[9.0] * CONSECUTIVE_PERIODS]

    def end(begun: int) -> tuple[int, int] | None:
        guard = StopOnDivergence(LOSSES, 3.0, before=[(4, loss) for loss in losses[:begun]])
        for number, loss in enumerate(losses[begun:], start=begun + 1):
            try:
                guard.period(period(4 * number, loss - 0.5))
            except DivergenceError as error:
                return error.step, error.updates
        return None

    assert [end(begun) for begun in range(len(losses))] == [(4 * len(losses), 4 * CONSECUTIVE_PERIODS)] * len(losses)


def test_consecutive_overflows_end_a_run():
    counter, periods = OverflowCounter(), MAX_CONSECUTIVE_OVERFLOWS // 4
    for step in range(periods - 1):
        counter.period(period(step, 7.0, overflows=4.0))  # all four updates
    counter.period(period(periods, 7.0, overflows=3.0))  # one was applied, so the count begins again
    for step in range(periods - 1):
        counter.period(period(step, 7.0, overflows=4.0))
    with pytest.raises(UserError, match="overflowed"):
        counter.period(period(0, 7.0, overflows=4.0))
    assert counter.count == 4 * (2 * periods - 1) + 3
