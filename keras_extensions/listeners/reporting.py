"""Measures a run, and passes its logging periods to listeners.

One clock and one conversion of the metrics serve all listeners, so the log line, metrics.jsonl and TensorBoard never
disagree.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Sequence

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
        seconds: seconds of training so far, including the time before a resume.
        compiling: whether ``throughput`` includes compilation, as in the first period.
        rates: with packing, ``packs`` and ``tokens`` per second.
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
        rates = {f"{unit}_per_second": rate for unit, rate in self.rates.items()}
        learning_rate = {} if self.learning_rate is None else {LEARNING_RATE: self.learning_rate}
        return {**self.metrics, THROUGHPUT: self.throughput, **rates, **learning_rate}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The scores of an evaluation while training, after ``step`` of ``total_steps`` updates."""

    step: int
    total_steps: int
    samples: int
    scores: Dict[str, float]
    is_best: bool

    def scalars(self) -> Dict[str, float]:
        return {f"evaluation/{name}": value for name, value in self.scores.items()}


class Listener:
    """Receives the events of a run. Every method is optional."""

    def begin(self, first_step: int, total_steps: int) -> None:
        """Training begins."""

    def compiled(self, seconds: float, updates: int, note: str) -> None:
        """The first period ended ``seconds`` after the start; ``note`` says what this time includes."""

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


class Reporting:
    """Reports every logging period to the listeners.

    Args:
        samples_per_step: samples of one update (the global batch); the mean with packing.
        started: ``time.perf_counter()`` when the program started, for measuring the time to the first step; None: it is
            measured from the beginning of training.
        packs_per_step: packs of one update, whose samples and tokens are among the metrics; None without packing.
    """

    def __init__(
        self,
        total_steps: int,
        samples_per_step: float,
        listeners: Sequence[Listener],
        first_step: int = 0,
        started: Optional[float] = None,
        packs_per_step: Optional[int] = None,
        seconds_before: float = 0.0,
        first_period: str = "with compilation",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.total_steps = total_steps
        self.samples_per_step = samples_per_step
        self.listeners: List[Listener] = list(listeners)
        self._step = first_step
        self._started = started
        self._packs_per_step = packs_per_step
        self._seconds_before = seconds_before
        self._first_period = first_period
        self._clock = clock
        self._compiled_at: Optional[float] = None  # end of the first period
        self._compiled_step = first_step

    def begin(self) -> None:
        self._begin = self._period_begin = self._clock()
        for listener in self.listeners:
            listener.begin(self._step, self.total_steps)

    def report(self, step: int, metrics: Dict[str, float], rate: Optional[float] = None) -> None:
        """Report a logging period, which ends now.

        The metrics are means over the period.
        """
        now, updates = self._clock(), step - self._step
        compiling = self._compiled_at is None
        metrics = _losses_first(metrics)
        if OVERFLOWS in metrics:
            metrics[OVERFLOWS] *= updates
        rates = self._rates(updates / max(now - self._period_begin, 1e-9), metrics)
        throughput = rates.pop("samples")
        self._step = step
        period = Period(
            step=step,
            total_steps=self.total_steps,
            updates=updates,
            samples=round(step * self.samples_per_step),
            seconds=self._seconds_before + now - self._begin,
            throughput=throughput,
            compiling=compiling,
            eta=self._eta(now),
            learning_rate=rate,
            metrics=metrics,
            rates=rates,
        )
        if compiling:
            self._compiled_at, self._compiled_step = now, step
            start = self._begin if self._started is None else self._started
            for listener in self.listeners:
                listener.compiled(now - start, updates, self._first_period)
        self._period_begin = now
        for listener in self.listeners:
            listener.period(period)

    def exclude_time(self, seconds: float) -> None:
        """Exclude time that was not spent on training from the throughput; call this between two periods."""
        self._period_begin += seconds
        if self._compiled_at is not None:
            self._compiled_at += seconds

    def end(self) -> None:
        """End the listeners. Must also be called if an exception ended training."""
        for listener in self.listeners:
            listener.end()

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
        if self._step >= self.total_steps:
            return 0.0
        if self._compiled_at is None:
            return None
        return (now - self._compiled_at) / (self._step - self._compiled_step) * (self.total_steps - self._step)


def _losses_first(metrics: Dict[str, float]) -> Dict[str, float]:
    names = sorted(metrics, key=lambda name: (name != LOSS, not is_loss(name)))  # otherwise in the same order
    return {name: metrics[name] for name in names}
