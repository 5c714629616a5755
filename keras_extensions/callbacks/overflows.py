"""Counts the updates that were left out because their gradients overflowed, and ends a run that makes no others."""

from __future__ import annotations

import logging

from keras_extensions.callbacks.reporting import LOSS_SCALE, OVERFLOWS, Listener, Period
from utilities.errors import UserError

logger = logging.getLogger(__name__)

FRUITLESS = 100  # updates left out in a row, after which a run is given up


class Overflows(Listener):
    """Tells of overflows where a loss scale does not adapt to them by itself, and sums them up at the end.

    Attributes:
        count: of updates left out since training began.
    """

    def __init__(self) -> None:
        self.count = 0
        self._updates = 0
        self._in_a_row = 0
        self._told = False

    def period(self, period: Period) -> None:
        """Counts.

        Raises:
            UserError: for long, no update was done.
        """
        overflows = round(period.metrics.get(OVERFLOWS, 0.0))
        self.count += overflows
        self._updates += period.updates
        self._in_a_row = self._in_a_row + overflows if overflows == period.updates else 0
        if overflows and not self._told and LOSS_SCALE not in period.metrics:
            self._told = True
            logger.warning(
                "gradients overflow: such updates are left out and counted (overflows); lower"
                " optimizer_opts.loss_scaling, or set it to auto"
            )
        if self._in_a_row >= FRUITLESS:
            raise UserError(
                f"the gradients of the last {self._in_a_row} updates up to step {period.step} overflowed, so nothing is"
                " learnt; lower optimizer_opts.loss_scaling, set it to auto, or set execution.precision to bfloat16 or"
                " float32"
            )

    def end(self) -> None:
        """Sums up."""
        if self.count:
            logger.info("%d of %d updates were left out, as their gradients overflowed", self.count, self._updates)
            self.count = 0
