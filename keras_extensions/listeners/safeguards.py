"""Listeners that end a run that no longer learns, because the loss diverges or every update overflows."""

from __future__ import annotations

import logging
import math
import statistics
from collections import deque
from typing import Deque, Iterable, List, Mapping, Optional, Sequence, Tuple

from keras_extensions.listeners.reporting import Listener, Period
from utilities.errors import UserError
from utilities.metric_names import LOSS_SCALE, OVERFLOWS, is_loss

logger = logging.getLogger(__name__)

MEDIAN_WINDOW = 100  # logging periods of which the median is computed
MIN_PERIODS = 5  # logging periods before a loss can count as exploding
CONSECUTIVE_PERIODS = 3  # with an exploding loss; the loss of a single small batch may be an outlier
MAX_CONSECUTIVE_OVERFLOWS = 100


class DivergenceError(UserError):
    """Training diverged, as was noticed after ``step`` updates, in logging periods of ``updates`` updates."""

    def __init__(self, step: int, updates: int, reason: str) -> None:
        super().__init__(
            f"{reason} at step {step}: training diverged; lower optimizer_opts.learning_rate.max_learning_rate, set"
            " optimizer_opts.max_gradient_norm, or set on_divergence to rewind"
        )
        self.step = step
        self.updates = updates
        self.reason = reason


class StopOnDivergence(Listener):
    """Ends training at the first loss that is NaN, infinite or exploding.

    A NaN damages the weights for good, so further training would waste time. This must be the last listener, so that
    the others have already written the metrics that led to the divergence.

    Args:
        ratio: a sum above ``ratio`` times the median of the last periods explodes, if it is also above the first sum
            (which tolerates outliers of a model that has almost memorised its data). Consecutive periods of this kind
            are a divergence. None: only NaN and infinity are.
        before: the updates and the sum of each period before a resume, oldest first.
    """

    def __init__(
        self, losses: Sequence[str] = (), ratio: Optional[float] = None, before: Iterable[Tuple[int, float]] = ()
    ) -> None:
        self._losses = losses
        self._ratio = ratio
        self._window: Deque[float] = deque(maxlen=MEDIAN_WINDOW)
        self._first: Optional[float] = None
        self._exploding: List[int] = []  # updates of the last periods, if their losses explode
        for updates, loss in before:
            self._add(updates, loss)

    def period(self, period: Period) -> None:
        """Raise ``DivergenceError`` if a loss is NaN or infinite, or their sum has exploded in several periods."""
        for name, value in period.metrics.items():
            if is_loss(name) and not math.isfinite(value):
                raise DivergenceError(period.step, period.updates, f"{name} is {value}")
        loss = total_loss(period.metrics, self._losses)
        if loss is None:
            return
        self._add(period.updates, loss)
        if len(self._exploding) >= CONSECUTIVE_PERIODS:
            median = statistics.median(self._window)
            reason = f"the loss is {loss:.4g}, the median of the last {len(self._window)} periods {median:.4g}"
            raise DivergenceError(period.step, sum(self._exploding), reason)

    def _explodes(self, loss: float) -> bool:
        if self._ratio is None or self._first is None or len(self._window) < MIN_PERIODS:
            return False
        return loss > self._first and loss > self._ratio * statistics.median(self._window)

    def _add(self, updates: int, loss: float) -> None:
        if self._explodes(loss):
            self._exploding.append(updates)
            return
        self._exploding = []
        self._first = loss if self._first is None else self._first
        self._window.append(loss)


def total_loss(metrics: Mapping[str, Optional[float]], losses: Sequence[str]) -> Optional[float]:
    """Return the sum of the named losses; None if one is missing or not finite."""
    values = [value for value in map(metrics.get, losses) if value is not None and math.isfinite(value)]
    return math.fsum(values) if values and len(values) == len(losses) else None


class OverflowCounter(Listener):
    """Counts the updates skipped because gradients overflowed, and ends a run in which all are skipped."""

    def __init__(self) -> None:
        self.count = 0
        self._updates = 0
        self._consecutive = 0
        self._warned = False

    def period(self, period: Period) -> None:
        """Count the skipped updates of the period; if none was applied for a long time, it is a ``UserError``."""
        overflows = round(period.metrics.get(OVERFLOWS, 0.0))
        self.count += overflows
        self._updates += period.updates
        self._consecutive = self._consecutive + overflows if overflows == period.updates else 0
        if overflows and not self._warned and LOSS_SCALE not in period.metrics:
            self._warned = True
            logger.warning(
                "gradients overflow: such updates are skipped and counted (overflows); lower"
                " optimizer_opts.loss_scaling, or set it to auto"
            )
        if self._consecutive >= MAX_CONSECUTIVE_OVERFLOWS:
            raise UserError(
                f"the gradients of the last {self._consecutive} updates up to step {period.step} overflowed, so no"
                " update was applied; lower optimizer_opts.loss_scaling, set it to auto, or set execution.precision to"
                " bfloat16 or float32"
            )

    def end(self) -> None:
        if self.count:
            logger.info("%d of %d updates were skipped because their gradients overflowed", self.count, self._updates)
            self.count = 0
