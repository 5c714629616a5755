"""The progress of a training: short calls, logging periods, a request to stop; test_evaluation.py has evaluations."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from execution.processes import SINGLE_PROCESS
from keras_extensions.backend import keras
from keras_extensions.listeners.checkpoint_timer import CheckpointTimer
from keras_extensions.listeners.reporting import Listener, Reporting
from keras_extensions.listeners.signals import StopRequest
from training.progress import TrainingProgress
from training.run_context import Plan


class Made(NamedTuple):
    """The updates of each call, step and loss of each logging period, and the steps of checkpoints."""

    lengths: list[int]
    periods: list[tuple[int, float]]
    saved: list[int]


class Periods(Listener):
    def __init__(self, seen: list[tuple[int, float]]) -> None:
        self.seen = seen

    def period(self, period) -> None:
        self.seen.append((period.step, period.metrics["loss"]))


def trained(seconds: float, first_step: int = 0, stop_at: int | None = None, fixed: int | None = None) -> Made:
    """Train 23 updates in periods of 10, each update in ``seconds`` of the clock; the loss is the number of updates."""
    plan = Plan(updates=23, updates_per_period=10, micro_batches=1, packing_factor=1.0)
    request, made, now, step, goes_on = StopRequest(), Made([], [], []), [0.0], first_step, True
    reporting = Reporting(plan.updates, 1, [Periods(made.periods)], first_step, clock=lambda: now[0])
    timer = CheckpointTimer(made.saved.append, 1, first_step=first_step)
    optimizer, clock = keras.optimizers.SGD(0.5), lambda: now[0]
    progress = TrainingProgress(
        plan, first_step, optimizer, reporting, timer, None, request, SINGLE_PROCESS, clock
    )  # fmt: skip
    progress.begin()
    while goes_on and step < plan.updates:
        made.lengths.append(fixed or progress.next_call())
        step += made.lengths[-1]
        now[0] += made.lengths[-1] * seconds
        if step == stop_at:
            request.signal = "SIGTERM"
        goes_on = progress.after_call(made.lengths[-1], lambda step=step: {"loss": float(step)})
    progress.end()
    return made


def test_long_periods_are_divided_into_short_calls() -> None:
    assert trained(0.001).lengths == [1, 2, 4, 3, 6, 4, 3]
    assert trained(4.0).lengths == [1, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1]
    assert trained(60.0).lengths == [1] * 23


@pytest.mark.parametrize("first_step", [0, 7])
@pytest.mark.parametrize("seconds", [0.001, 4.0, 60.0])
def test_periods_are_reported_and_saved(seconds: float, first_step: int) -> None:
    """A resumed run first completes its period."""
    made = trained(seconds, first_step)
    assert made.periods == [(10, 10.0), (20, 20.0), (23, 23.0)] and made.saved == [10, 20, 23]


@pytest.mark.parametrize(("stop_at", "periods"), [(14, [10, 14]), (20, [10, 20])])
def test_a_request_to_stop_ends_the_period(stop_at: int, periods: list[int]) -> None:
    made = trained(60.0, stop_at=stop_at)
    assert made.saved == [step for step, _ in made.periods] == periods and made.lengths == [1] * stop_at


def test_calls_of_fixed_length_may_pass_the_end_of_a_period() -> None:
    """On such machines nobody asks for the length of a call."""
    assert trained(0.001, fixed=4).saved == [12, 20, 24]
