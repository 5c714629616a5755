"""The one callback that measures a run: it turns Keras's hooks into logging periods for listeners.

One clock and one conversion of the metrics serve all listeners, so the log line, metrics.jsonl and
TensorBoard never disagree:

    reporting = Reporting(total_steps=2000, samples_per_step=64, listeners=[Progress(), MetricsFile(path)])
    model.fit(dataset, callbacks=[reporting])
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from keras_extensions.backend import keras
from keras_extensions.callbacks.updates import UpdateCounter

# Name in Keras' logs of the last learning rate, where a platform tells which it used.
LEARNING_RATE = "learning_rate"
# Metrics of runs in narrow number formats: updates left out because gradients overflowed, in all, not on average; and
# the factor on the loss where it adapts.
OVERFLOWS, LOSS_SCALE = "overflows", "loss_scale"


@dataclasses.dataclass(frozen=True)
class Period:
    """What happened since the last logging period.

    Attributes:
        step: updates done so far.
        total_steps: updates of the whole run.
        updates: updates of this period.
        samples: samples seen so far.
        seconds: of training, with those before a resume.
        throughput: samples per second. The first execution, which compiles, is left out; where the period
            holds nothing else, it is counted and ``compiling`` is true.
        compiling: whether ``throughput`` includes compilation.
        rates: what else was worked off, per second, by unit; see :class:`Rows`.
        eta: seconds to the end of the run; None while unknown.
        learning_rate: rate of the period's last update; None if the model has no optimizer that tells.
        metrics: averages over the period (but ``OVERFLOWS`` is a number of updates), total loss first, then the losses,
            then the others.
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


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of the batch that hold several samples each, and not always as many.

    Attributes:
        name: what a row is, ``packs``.
        per_step: rows of one update.
        samples: the metric that tells how many samples a row holds.
        others: other units, by the metric that tells how many a row holds: ``{"tokens": "tokens_per_pack"}``.
    """

    name: str
    per_step: int
    samples: str
    others: Dict[str, str] = dataclasses.field(default_factory=dict)

    def rates(self, steps_per_second: float, metrics: Dict[str, float]) -> Dict[str, float]:
        """Units per second, ``samples`` among them."""
        rows = steps_per_second * self.per_step
        units = {"samples": self.samples, **self.others}
        return {self.name: rows, **{unit: rows * metrics[metric] for unit, metric in units.items()}}


class Listener:
    """Does something with the periods of a run; every method may be left out."""

    def begin(self, first_step: int, total_steps: int) -> None:
        """Training begins."""

    def first_execution(self, seconds: float, updates: int) -> None:
        """The first execution, with its compilation, ended ``seconds`` after the start."""

    def period(self, period: Period) -> None:
        """A logging period ended."""

    def end(self) -> None:
        """Training ended; may be called more than once."""

    def scored(self, scores: Dict[str, float]) -> None:
        """The evaluation after training gave these scores."""

    def wrote(self, kind: str, path: Path) -> None:
        """The run wrote a ``checkpoint`` or its ``report``."""

    def close(self, completed: bool) -> None:
        """The run ends; ``completed`` is false where an error or a signal ended it. Comes once, after all else."""


@contextlib.contextmanager
def closing(listeners: Sequence[Listener]) -> Iterator[None]:
    """Closes listeners when the run leaves the block, however it does."""
    completed = False
    try:
        yield
        completed = True
    finally:
        for listener in listeners:
            listener.close(completed)


class Reporting(UpdateCounter):
    """Hands every logging period of a run to listeners.

    Args:
        total_steps: updates of the whole run, with those before a resume.
        samples_per_step: samples of one update, the global batch; a mean where ``rows`` hold several.
        listeners: called in order.
        steps_per_period: updates between two reports. A period ends with the execution that completes it, so
            at most one period ends in each execution.
        first_step: updates done before this run.
        started: ``time.perf_counter()`` when the program started, for the time to the first step; None: the
            begin of training.
        rows: where rows of the batch are no single samples, what they are.
        seconds_before: of training before this run, by the run that it resumes.
        clock: seconds that only grow; tests bring their own.
    """

    def __init__(
        self,
        total_steps: int,
        samples_per_step: float,
        listeners: Sequence[Listener],
        steps_per_period: int = 1,
        first_step: int = 0,
        started: Optional[float] = None,
        rows: Optional[Rows] = None,
        seconds_before: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(first_step)
        self.total_steps = total_steps
        self.samples_per_step = samples_per_step
        self.listeners: List[Listener] = list(listeners)
        self.steps_per_period = steps_per_period
        self._started = started
        self._rows = rows
        self._seconds_before = seconds_before
        self._clock = clock
        self._compiled_at: Optional[float] = None  # end of the first execution
        self._compiled_step = first_step

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Keras: training begins."""
        self._begin = self._period_begin = self._clock()
        self._period_step = self.step
        self._sums: Dict[str, float] = {}
        self._rate: Optional[float] = None  # as the model itself reports it
        for listener in self.listeners:
            listener.begin(self.step, self.total_steps)

    def on_execution_end(self, updates: int, metrics: Dict[str, float]) -> None:
        """Collects the execution, and reports where the period is complete."""
        now = self._clock()
        self._rate = metrics.pop(LEARNING_RATE, None)
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value * updates
        if self._compiled_at is None:
            self._compiled_at, self._compiled_step = now, self.step
            start = self._begin if self._started is None else self._started
            for listener in self.listeners:
                listener.first_execution(now - start, updates)
        if self.step - self._period_step >= self.steps_per_period or self.step >= self.total_steps:
            self._report(now)

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Reports the unfinished period, if any, and ends the listeners."""
        if self.step > self._period_step:
            self._report(self._clock())
        self.close()

    def close(self) -> None:
        """Ends the listeners; to be called, too, where training stopped with an exception."""
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
        period = Period(
            step=self.step,
            total_steps=self.total_steps,
            updates=updates,
            samples=round(self.step * self.samples_per_step),
            seconds=self._seconds_before + now - self._begin,
            throughput=throughput,
            compiling=compiling,
            eta=self._eta(now),
            learning_rate=learning_rate(self.model, self.step) if self._rate is None else self._rate,
            metrics=metrics,
            rates=rates,
        )
        self._sums, self._period_begin, self._period_step = {}, now, self.step
        for listener in self.listeners:
            listener.period(period)

    def _rates(self, steps_per_second: float, metrics: Dict[str, float]) -> Dict[str, float]:
        if self._rows is None:
            return {"samples": steps_per_second * self.samples_per_step}
        return self._rows.rates(steps_per_second, metrics)

    def _eta(self, now: float) -> Optional[float]:
        """From the mean rate since compilation, which is steadier than the last period's."""
        assert self._compiled_at is not None
        steady = self.step - self._compiled_step
        if self.step >= self.total_steps:
            return 0.0
        return (now - self._compiled_at) / steady * (self.total_steps - self.step) if steady else None


def learning_rate(model: keras.Model, step: int) -> Optional[float]:
    """Learning rate of update number ``step`` (1-based); None where no optimizer tells."""
    rate = getattr(getattr(model, "optimizer", None), "learning_rate", None)
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):  # optimizers of Keras 2.6
        rate = rate(step - 1)
    return None if rate is None else float(keras.backend.get_value(rate))


def _losses_first(metrics: Dict[str, float]) -> Dict[str, float]:
    def rank(name: str) -> int:
        return 0 if name == "loss" else 1 if name.endswith("_loss") else 2

    return dict(sorted(metrics.items(), key=lambda item: rank(item[0])))  # stable
