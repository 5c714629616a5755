"""The course of a training: short calls, logging periods, a request to stop, evaluations that end periods."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from execution.processes import SINGLE_PROCESS
from keras_extensions.listeners.signals import StopRequest
from training.course import TrainingCourse
from training.run_context import Plan

PLAN = Plan(updates=23, updates_per_period=10, micro_batches=1, packing_factor=1.0)


class Run:
    """A training of 23 updates in periods of 10; it has the length of each call, and what was done after calls."""

    def __init__(
        self,
        seconds: float,
        first_step: int = 0,
        stop_at: int | None = None,
        evaluations: tuple[int, ...] = (),
        patience_ends_at: int | None = None,
    ) -> None:
        self.now, self.seconds = 0.0, seconds
        self.lengths: list[int] = []
        self.events: list[tuple[Any, ...]] = []
        request = StopRequest()
        evaluation = SimpleNamespace(
            next_step=lambda step: min((due for due in evaluations if due > step), default=PLAN.updates),
            evaluate_if_due=lambda step, before: self._evaluate(step, before, evaluations, patience_ends_at),
        )
        course = TrainingCourse(
            PLAN,
            first_step,
            SimpleNamespace(learning_rate=0.5),
            SimpleNamespace(
                begin=lambda: self.events.append(("begin",)),
                report=lambda step, metrics, rate: self.events.append(("report", step, metrics["loss"], rate)),
                end=lambda: self.events.append(("end",)),
            ),
            SimpleNamespace(
                begin=lambda: None,
                save_if_due=lambda step: self.events.append(("save", step)),
                end=lambda: self.events.append(("save last",)),
            ),
            evaluation if evaluations else None,
            None,
            request,
            SINGLE_PROCESS,
            clock=lambda: self.now,
        )
        self._train(course, request, first_step, stop_at)

    def _train(self, course: TrainingCourse, request: StopRequest, step: int, stop_at: int | None) -> None:
        course.begin()
        goes_on, seen = True, [0.0]
        while goes_on:
            count = course.next_call()
            self.now += count * self.seconds
            self.lengths.append(count)
            step += count
            seen[0] += count
            if step == stop_at:
                request.signal = "SIGTERM"
            goes_on = course.after_call(count, lambda: {"loss": seen[0]})
        course.end()

    def _evaluate(self, step: int, before: int, due: tuple[int, ...], ends_at: int | None) -> bool:
        if not any(before < one <= step for one in due):
            return False
        self.events.append(("evaluate", step))
        return step == ends_at

    @property
    def periods(self) -> list[int]:
        return [event[1] for event in self.events if event[0] == "report"]


def test_long_periods_are_divided_into_short_calls() -> None:
    assert Run(0.001).lengths == [1, 2, 4, 3, 6, 4, 3]
    assert Run(4.0).lengths == [1, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1]
    assert Run(60.0).lengths == [1] * 23
    assert Run(0.001, evaluations=(17,)).lengths == [1, 2, 4, 3, 6, 1, 2, 1, 2, 1]
    for seconds in (0.001, 4.0, 60.0):
        assert Run(seconds).periods == [10, 20, 23]


def test_a_period_is_reported_and_saved_and_the_end_is_saved_last() -> None:
    assert Run(0.001).events == [
        ("begin",), ("report", 10, 10.0, 0.5), ("save", 10), ("report", 20, 20.0, 0.5), ("save", 20),
        ("report", 23, 23.0, 0.5), ("save", 23), ("end",), ("save last",),
    ]  # fmt: skip


def test_a_resumed_run_first_completes_its_period() -> None:
    assert Run(0.001, first_step=7).periods == [10, 20, 23]


@pytest.mark.parametrize(("stop_at", "periods"), [(14, [10, 14]), (20, [10, 20])])
def test_a_request_to_stop_ends_the_period(stop_at: int, periods: list[int]) -> None:
    run = Run(60.0, stop_at=stop_at, evaluations=(20,))
    assert run.periods == periods and run.lengths == [1] * stop_at
    assert (("evaluate", 20) in run.events) == (stop_at == 20), "no evaluation within a period that was cut off"
    assert run.events[-1] == ("save last",)


def test_an_evaluation_ends_its_period_and_may_end_the_training() -> None:
    run = Run(0.001, evaluations=(4, 17), patience_ends_at=17)
    assert run.periods == [4, 10, 17]
    assert run.events[-4:] == [("save", 17), ("evaluate", 17), ("end",), ("save last",)]


def test_calls_of_fixed_length_may_pass_the_end_of_a_period() -> None:
    """On such machines nobody asks for the length of a call."""
    run = Run(0.001)
    course = TrainingCourse(
        PLAN,
        0,
        None,
        SimpleNamespace(report=lambda step, metrics, rate: run.events.append(("fixed", step, rate))),
        SimpleNamespace(save_if_due=lambda step: None),
        None,
        None,
        StopRequest(),
        SINGLE_PROCESS,
    )
    going = [course.after_call(4, lambda: {"learning_rate": 0.1}) for _ in range(6)]
    assert going == [True] * 6
    assert [event[1:] for event in run.events if event[0] == "fixed"] == [(12, 0.1), (20, 0.1), (24, 0.1)]
