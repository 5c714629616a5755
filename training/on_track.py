"""Warns, during the run, when the loss leaves the band of its reference."""

from __future__ import annotations

import logging
import math
from typing import Sequence

from keras_extensions.callbacks.reporting import Listener, Period
from utilities.report.reference import ABOVE, BELOW, ON_TRACK, Band, Judge

logger = logging.getLogger(__name__)


class OnTrack(Listener):
    """Compares the smoothed loss of every period with a band; a warning when it leaves, a line when it is back.

    Args:
        band: where the loss should lie.
        positions, values: what the run logged before it was resumed.
    """

    def __init__(self, band: Band, positions: Sequence[float] = (), values: Sequence[float] = ()) -> None:
        self._band = band
        self._judge = Judge(band)
        for point in zip(positions, values):
            self._judge.add(*point)
        self._told = self._judge.state or ON_TRACK

    def begin(self, first_step: int, total_steps: int) -> None:
        """Says what the run is held to."""
        band = self._band
        logger.info("%s is held to %s, up to %s %s", band.metric, band.source, f"{band.positions[-1]:,.0f}", band.axis)

    def period(self, period: Period) -> None:
        """Judges the period."""
        value = period.metrics.get(self._band.metric)
        if value is None or not math.isfinite(value):  # other listeners have a word on NaN
            return
        position = float(period.samples if self._band.axis == "samples" else period.step)
        state = self._judge.add(position, value)
        if state is not None and state != self._told:
            self._told = state
            self._tell(state, position, period)

    def _tell(self, state: str, position: float, period: Period) -> None:
        band = self._band
        low, high = band.at(position) or (math.nan, math.nan)
        where = f"{band.metric} is {self._judge.mean:.4f} at step {period.step} ({period.samples:,} samples)"
        edges = f"{low:.4f} to {high:.4f} of {band.source}"
        if state == ABOVE:
            logger.warning("not on track: %s, above %s", where, edges)
        elif state == BELOW:
            logger.warning("unlike its reference: %s, below %s", where, edges)
        else:
            logger.info("on track again: %s, within %s", where, edges)
