"""Notice that training diverges: a loss that is no number, or one that explodes."""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import Deque, Dict, Iterable, Optional, Sequence

from keras_extensions.callbacks.reporting import Listener, Period
from utilities.errors import UserError

WINDOW = 100  # logging periods that the median is taken of
FEWEST = 5  # periods before a loss can be said to explode


class DivergenceError(UserError):
    """Training diverged.

    Attributes:
        step: updates done when it was seen.
        updates: updates of the logging period in which it happened.
        reason: what was seen, in words.
    """

    def __init__(self, step: int, updates: int, reason: str) -> None:
        super().__init__(
            f"{reason} at step {step}: training diverged; lower optimizer_opts.learning_rate.max_learning_rate, set"
            " optimizer_opts.max_gradient_norm, or set on_divergence to rewind"
        )
        self.step = step
        self.updates = updates
        self.reason = reason


class StopOnDivergence(Listener):
    """Ends training at the first loss that is no number, or that explodes.

    Weights that met a NaN stay broken, so training on would only waste time. This one should be the last listener of
    all: the others have then written what led to it.

    Args:
        losses: the terms whose sum is minimised.
        ratio: a sum of more than so many times the median of the last periods, and of more than the first one, is an
            explosion. The latter spares the outliers of a model that has learnt its data almost by heart. None: no sum
            is an explosion.
        before: the sums of all periods before a resume, oldest first.
    """

    def __init__(self, losses: Sequence[str] = (), ratio: Optional[float] = None, before: Iterable[float] = ()) -> None:
        self._losses = losses
        self._ratio = ratio
        self._window: Deque[float] = deque(maxlen=WINDOW)
        self._first: Optional[float] = None
        for loss in before:
            self._remember(loss)

    def period(self, period: Period) -> None:
        """Looks at the period's losses.

        Raises:
            DivergenceError: one is NaN or infinite, or their sum explodes.
        """
        for name, value in period.metrics.items():
            if name.endswith("loss") and not math.isfinite(value):
                raise DivergenceError(period.step, period.updates, f"{name} is {value}")
        loss = total_loss(period.metrics, self._losses)
        if loss is None:
            return
        if self._ratio is not None and self._first is not None and len(self._window) >= FEWEST:
            median = statistics.median(self._window)
            if loss > self._first and loss > self._ratio * median:
                reason = f"the loss is {loss:.4g}, the median of the last {len(self._window)} periods {median:.4g}"
                raise DivergenceError(period.step, period.updates, reason)
        self._remember(loss)

    def _remember(self, loss: float) -> None:
        self._first = loss if self._first is None else self._first
        self._window.append(loss)


def total_loss(metrics: Dict[str, Optional[float]], losses: Sequence[str]) -> Optional[float]:
    """The sum of the terms that are minimised; None where one is missing or no number."""
    values = [metrics.get(name) for name in losses]
    if not values or any(value is None or not math.isfinite(value) for value in values):
        return None
    return math.fsum(values)
