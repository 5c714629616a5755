"""What happens between two calls of the compiled program: log, save, evaluate, stop."""

from __future__ import annotations

import time
from typing import Callable, Dict, Optional

from execution.interface import Progress
from execution.processes import Processes
from keras_extensions.backend import keras
from keras_extensions.listeners.checkpoint_timer import CheckpointTimer
from keras_extensions.listeners.reporting import Reporting, learning_rate
from keras_extensions.listeners.signals import CallLengths, StopRequest
from training.evaluation import EvaluateWhileTraining
from training.run_context import Plan
from utilities.metric_names import LEARNING_RATE


class TrainingProgress(Progress):
    """The progress of a training from one step to its end, to a divergence, or until it is asked to stop.

    Listeners of the ``reporting`` may end it by an exception; all processes stop at the same step.
    """

    def __init__(
        self,
        plan: Plan,
        step: int,
        optimizer: keras.optimizers.Optimizer,
        reporting: Reporting,
        timer: CheckpointTimer,
        evaluation: Optional[EvaluateWhileTraining],
        request: StopRequest,
        processes: Processes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._step = self._period_begin = step
        self._optimizer = optimizer
        self._reporting = reporting
        self._timer = timer
        self._evaluation = evaluation
        self._request = request
        self._processes = processes
        self._lengths = CallLengths(processes.maximum, clock)

    def begin(self) -> None:
        """Start the clocks; training begins."""
        self._reporting.begin()
        self._timer.begin()

    def next_call(self) -> int:
        return self._lengths.next(self._period_end() - self._step)

    def after_call(self, updates: int, means: Callable[[], Dict[str, float]]) -> bool:
        self._step += updates
        self._lengths.made(updates)
        has_ended = self._step >= self._period_end() and self._end_period(means)
        if self._request.agree(self._processes.maximum):
            if self._step > self._period_begin:
                self._report_and_save(means)
            return False
        return not has_ended

    def end(self) -> None:
        """Save the last state; training has ended without an exception."""
        self._reporting.end()
        self._timer.end()

    def _period_end(self) -> int:
        """Return the step at which the present logging period ends; an evaluation ends it, too."""
        plan, begin = self._plan, self._period_begin
        end = min((begin // plan.updates_per_period + 1) * plan.updates_per_period, plan.updates)
        return end if self._evaluation is None else min(end, self._evaluation.next_step(begin))

    def _end_period(self, means: Callable[[], Dict[str, float]]) -> bool:
        """End a logging period, and return whether training has ended."""
        before = self._period_begin
        self._report_and_save(means)
        has_ended = self._step == self._plan.updates
        if self._evaluation is not None:
            has_ended |= self._evaluation.evaluate_if_due(self._step, before)
        return has_ended

    def _report_and_save(self, means: Callable[[], Dict[str, float]]) -> None:
        step, metrics = self._step, means()
        self._period_begin = step
        rate = metrics.pop(LEARNING_RATE, None)
        self._reporting.report(step, metrics, learning_rate(self._optimizer, step) if rate is None else rate)
        self._timer.save_if_due(step)
