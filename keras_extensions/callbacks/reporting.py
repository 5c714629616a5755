"""Measures a run: a Keras callback turns Keras' hooks into logging periods and passes these to listeners.

One clock and one conversion of the metrics serve all listeners, so the log line, metrics.jsonl and TensorBoard never
disagree:

    reporting = Reporting(total_steps=2000, samples_per_step=64, listeners=[Progress(), MetricsFile(path)])
    model.fit(dataset, callbacks=[PerExecutionMetrics(), reporting])
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from keras_extensions.backend import keras
from utilities.metric_names import (
    LEARNING_RATE,
    LOSS,
    OVERFLOWS,
    SEQUENCES_PER_PACK,
    THROUGHPUT,
    TOKENS_PER_PACK,
    is_loss,
)


@dataclasses.dataclass(frozen=True)
class Period:
    """The training between two log lines.

    Attributes:
        step: updates done so far.
        total_steps: updates of the whole run.
        updates: updates of this period.
        samples: samples seen so far.
        seconds: seconds of training so far, including the time before a resume.
        throughput: samples per second. The first execution, which compiles, is excluded, unless the period contains
            no other execution; ``compiling`` is then true.
        compiling: whether ``throughput`` includes compilation.
        rates: with packing, ``packs`` and ``tokens`` per second.
        eta: seconds to the end of the run; None while unknown.
        learning_rate: learning rate of the period's last update; None if the optimizer does not report it.
        metrics: averages over the period (``OVERFLOWS`` is a count): the total loss first, then the losses, then the
            others.
    """

    step: int
    total_steps: int
    updates: int
    samples: int
    seconds: float
    throughput: float
    compiling: bool
    eta: Optional[float]
    learning_rate: Optional[float]
    metrics: Dict[str, float]
    rates: Dict[str, float] = dataclasses.field(default_factory=dict)

    def scalars(self) -> Dict[str, float]:
        """Return the values to draw against the step, by name."""
        rates = {f"{unit}_per_second": rate for unit, rate in self.rates.items()}
        learning_rate = {} if self.learning_rate is None else {LEARNING_RATE: self.learning_rate}
        return {**self.metrics, THROUGHPUT: self.throughput, **rates, **learning_rate}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The scores of an evaluation while training.

    Attributes:
        step: updates done so far.
        total_steps: updates of the whole run.
        samples: samples seen so far.
        scores: the scores by name.
        is_best: whether it is the best so far.
    """

    step: int
    total_steps: int
    samples: int
    scores: Dict[str, float]
    is_best: bool

    def scalars(self) -> Dict[str, float]:
        """Return the values to draw against the step, by name."""
        return {f"evaluation/{name}": value for name, value in self.scores.items()}


class Listener:
    """Receives the events of a run. Every method is optional."""

    def begin(self, first_step: int, total_steps: int) -> None:
        """Training begins."""

    def first_execution(self, seconds: float, updates: int, programs: str) -> None:
        """The first execution, including compilation, ended ``seconds`` after the start.

        ``programs`` says where the compiled programs came from, unless it is empty.
        """

    def period(self, period: Period) -> None:
        """A logging period ended."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """The model was evaluated while training, or right before it."""

    def end(self) -> None:
        """Training ended; may be called more than once."""

    def scored(self, scores: Dict[str, float]) -> None:
        """The evaluation after training produced these scores."""

    def wrote(self, kind: str, path: Path) -> None:
        """The run wrote a file; ``kind`` is ``checkpoint`` or ``report``."""

    def close(self, completed: bool) -> None:
        """The run ended, by an error or a signal if not ``completed``. Called once, after everything else."""


@contextlib.contextmanager
def closing(listeners: Sequence[Listener]) -> Iterator[None]:
    """Close the listeners when the block ends, even by an exception."""
    completed = False
    try:
        yield
        completed = True
    finally:
        for listener in listeners:
            listener.close(completed)


class UpdateCounter(keras.callbacks.Callback):
    """Base class of callbacks that count weight updates over epochs and executions of several steps.

    With ``steps_per_execution=K`` Keras calls ``on_train_batch_end`` once for up to K updates; ``batch`` is the index
    of the last of them within the epoch.

    Args:
        first_step: updates done before a resume.

    Attributes:
        step: updates done so far, including those before a resume.
    """

    def __init__(self, first_step: int = 0) -> None:
        super().__init__()
        self.first_step = first_step
        self.step = first_step
        self._epoch_start = first_step

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._epoch_start = self.step

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        done = self._epoch_start + batch + 1
        updates, self.step = done - self.step, done
        self.on_execution_end(updates, {name: float(value) for name, value in (logs or {}).items()})

    def on_execution_end(self, updates: int, metrics: Dict[str, float]) -> None:
        """Called after each execution.

        Args:
            updates: updates done by this execution.
            metrics: their averages.
        """
        raise NotImplementedError


class PerExecutionMetrics(keras.callbacks.Callback):
    """Resets the metrics before each execution, because Keras averages them over the whole epoch."""

    def on_train_batch_begin(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.model.reset_metrics()


class Reporting(UpdateCounter):
    """Reports every logging period to the listeners.

    Args:
        total_steps: updates of the whole run.
        samples_per_step: samples of one update (the global batch); the mean with packing.
        listeners: called in this order.
        steps_per_period: updates between two reports. A period ends with the execution that completes it, so at most
            one period ends in each execution.
        first_step: updates done before a resume.
        started: ``time.perf_counter()`` when the program started, for measuring the time to the first step; None: it is
            measured from the beginning of training.
        packs_per_step: packs of one update, whose samples and tokens are among the metrics; None without packing.
        seconds_before: seconds of training before a resume.
        programs: called after the first execution; returns where its compiled programs came from.
        clock: monotonic clock in seconds; tests bring their own.
    """

    def __init__(
        self,
        total_steps: int,
        samples_per_step: float,
        listeners: Sequence[Listener],
        steps_per_period: int = 1,
        first_step: int = 0,
        started: Optional[float] = None,
        packs_per_step: Optional[int] = None,
        seconds_before: float = 0.0,
        programs: Callable[[], str] = str,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(first_step)
        self.total_steps = total_steps
        self.samples_per_step = samples_per_step
        self.listeners: List[Listener] = list(listeners)
        self.steps_per_period = steps_per_period
        self._started = started
        self._packs_per_step = packs_per_step
        self._seconds_before = seconds_before
        self._programs = programs
        self._clock = clock
        self._compiled_at: Optional[float] = None  # end of the first execution
        self._compiled_step = first_step

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._begin = self._period_begin = self._clock()
        self._period_step = self.step
        self._sums: Dict[str, float] = {}
        self._reported_rate: Optional[float] = None
        for listener in self.listeners:
            listener.begin(self.step, self.total_steps)

    def on_execution_end(self, updates: int, metrics: Dict[str, float]) -> None:
        now = self._clock()
        self._reported_rate = metrics.pop(LEARNING_RATE, None)
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value * updates
        if self._compiled_at is None:
            programs = self._programs()
            self._compiled_at, self._compiled_step = now, self.step
            start = self._begin if self._started is None else self._started
            for listener in self.listeners:
                listener.first_execution(now - start, updates, programs)
        if self.step - self._period_step >= self.steps_per_period or self.step >= self.total_steps:
            self._report(now)

    def exclude_time(self, seconds: float) -> None:
        """Exclude time that was not spent on training from the throughput; call this between two periods."""
        self._period_begin += seconds
        if self._compiled_at is not None:
            self._compiled_at += seconds

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Reports the unfinished period, if any."""
        if self.step > self._period_step:
            self._report(self._clock())
        self.close()

    def close(self) -> None:
        """End the listeners. Must also be called if an exception ended training."""
        for listener in self.listeners:
            listener.end()

    def _report(self, now: float) -> None:
        assert self._compiled_at is not None
        compiling = self._period_step < self._compiled_step == self.step
        if compiling or self._period_step >= self._compiled_step:
            start, start_step = self._period_begin, self._period_step
        else:
            start, start_step = self._compiled_at, self._compiled_step
        updates = self.step - self._period_step
        averages = {name: total if name == OVERFLOWS else total / updates for name, total in self._sums.items()}
        metrics = _losses_first(averages)
        rates = self._rates((self.step - start_step) / max(now - start, 1e-9), metrics)
        throughput = rates.pop("samples")
        rate = self._reported_rate
        period = Period(
            step=self.step,
            total_steps=self.total_steps,
            updates=updates,
            samples=round(self.step * self.samples_per_step),
            seconds=self._seconds_before + now - self._begin,
            throughput=throughput,
            compiling=compiling,
            eta=self._eta(now),
            learning_rate=learning_rate(self.model, self.step) if rate is None else rate,
            metrics=metrics,
            rates=rates,
        )
        self._sums, self._period_begin, self._period_step = {}, now, self.step
        for listener in self.listeners:
            listener.period(period)

    def _rates(self, steps_per_second: float, metrics: Dict[str, float]) -> Dict[str, float]:
        """Return samples per second and, with packing, packs and tokens per second."""
        if self._packs_per_step is None:
            return {"samples": steps_per_second * self.samples_per_step}
        packs = steps_per_second * self._packs_per_step
        return {
            "packs": packs,
            "samples": packs * metrics[SEQUENCES_PER_PACK],
            "tokens": packs * metrics[TOKENS_PER_PACK],
        }

    def _eta(self, now: float) -> Optional[float]:
        """Estimate the time left from the mean rate since compilation, which is steadier than the last period's."""
        assert self._compiled_at is not None
        steps = self.step - self._compiled_step
        if self.step >= self.total_steps:
            return 0.0
        return (now - self._compiled_at) / steps * (self.total_steps - self.step) if steps else None


def learning_rate(model: keras.Model, step: int) -> Optional[float]:
    """Return the learning rate of update ``step`` (counted from 1); None if the model has no optimizer with one."""
    rate = getattr(getattr(model, "optimizer", None), "learning_rate", None)
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):  # optimizers of Keras 2.6
        rate = rate(step - 1)
    return None if rate is None else float(keras.backend.get_value(rate))


def _losses_first(metrics: Dict[str, float]) -> Dict[str, float]:
    def rank(name: str) -> int:
        return 0 if name == LOSS else 1 if is_loss(name) else 2

    return dict(sorted(metrics.items(), key=lambda item: rank(item[0])))  # stable
