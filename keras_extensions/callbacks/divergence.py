"""Stop a run that can only waste time."""

from __future__ import annotations

import math

from keras_extensions.callbacks.reporting import Listener, Period
from utilities.errors import UserError


class StopOnDivergence(Listener):
    """Ends training at the first loss that is no number: weights that met one stay broken."""

    def period(self, period: Period) -> None:
        """Looks at the period's losses.

        Raises:
            UserError: one is NaN or infinite.
        """
        for name, value in period.metrics.items():
            if name.endswith("loss") and not math.isfinite(value):
                raise UserError(
                    f"{name} is {value} at step {period.step}: training diverged; lower"
                    " optimizer_opts.learning_rate.max_learning_rate, or set optimizer_opts.max_gradient_norm"
                )
