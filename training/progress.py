"""What happens between two calls of the compiled program: log, save, evaluate, stop."""

from __future__ import annotations

import dataclasses
import time
from typing import Callable, Dict, Optional

from execution.interface import Progress
from execution.processes import Processes
from keras_extensions.backend import keras
from keras_extensions.listeners.checkpoint_timer import CheckpointTimer
from keras_extensions.listeners.reporting import Reporting
from keras_extensions.listeners.signals import CallLengths, StopRequest
from training.evaluation import EvaluateWhileTraining
from training.run_context import Plan
from utilities.metric_names import LEARNING_RATE


@dataclasses.dataclass
class TrainingProgress(Progress):
    """The progress of a training from one step to its end, to a divergence, or until it is asked to stop.

    Listeners of the ``reporting`` may end it by an exception; all processes stop at the same step.
    """

    plan: Plan
    step: int
    optimizer: keras.optimizers.Optimizer
    reporting: Reporting
    timer: CheckpointTimer
    evaluation: Optional[EvaluateWhileTraining]
    request: StopRequest
    processes: Processes
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._period_begin = self.step
        self._lengths = CallLengths(self.processes.maximum, self.clock)

    def begin(self) -> None:
        """Start the clocks; training begins."""
        self.reporting.begin()
        self.timer.begin()

    def next_call(self) -> int:
        return self._lengths.next(self._period_end() - self.step)

    def after_call(self, updates: int, means: Callable[[], Dict[str, float]]) -> bool:
        self.step += updates
        self._lengths.made(updates)
        has_ended = self.step >= self._period_end() and self._end_period(means)
        if self.request.agree(self.processes.maximum):
            if self.step > self._period_begin:
                self._report_and_save(means)
            return False
        return not has_ended

    def end(self) -> None:
        """Save the last state; training has ended without an exception."""
        self.reporting.end()
        self.timer.end()

    def _period_end(self) -> int:
        """Return the step at which the present logging period ends; an evaluation ends it, too."""
        plan, begin = self.plan, self._period_begin
        end = min((begin // plan.updates_per_period + 1) * plan.updates_per_period, plan.updates)
        return end if self.evaluation is None else min(end, self.evaluation.next_step(begin))

    def _end_period(self, means: Callable[[], Dict[str, float]]) -> bool:
        """End a logging period, and return whether training has ended."""
        before = self._period_begin
        self._report_and_save(means)
        has_ended = self.step == self.plan.updates
        if self.evaluation is not None:
            has_ended |= self.evaluation.evaluate_if_due(self.step, before)
        return has_ended

    def _report_and_save(self, means: Callable[[], Dict[str, float]]) -> None:
        step, metrics = self.step, means()
        self._period_begin = step
        rate = metrics.pop(LEARNING_RATE, None)  # from an IPU; elsewhere the optimizer keeps that of the last update
        self.reporting.report(step, metrics, float(self.optimizer.learning_rate) if rate is None else rate)
        self.timer.save_if_due(step)
