"""Warns, during the run, when the loss leaves the band of its reference."""

from __future__ import annotations

import logging
from typing import Sequence

from keras_extensions.callbacks.reporting import Listener, Period
from utilities.report.reference import ABOVE, BELOW, FEWEST_POINTS, ON_TRACK, Band, TrailingMean

logger = logging.getLogger(__name__)

PATIENCE = 3  # periods in a row: one may be chance


class OnTrack(Listener):
    """Compares the smoothed loss of every period with a band; a warning when it leaves, a line when it is back.

    Args:
        band: where the loss should lie.
        positions, values: what the run logged before it was resumed.
    """

    def __init__(self, band: Band, positions: Sequence[float] = (), values: Sequence[float] = ()) -> None:
        self._band = band
        self._mean = TrailingMean()
        for point in zip(positions, values):
            self._mean.add(*point)
        self._state = ON_TRACK  # as last told
        self._streak = 0

    def begin(self, first_step: int, total_steps: int) -> None:
        """Says what the run is held to."""
        band = self._band
        last = f"{band.positions[-1]:,.0f} {band.axis}"
        logger.info("%s is held to %s, up to %s", band.metric, band.source, last)

    def period(self, period: Period) -> None:
        """Judges the period."""
        value = period.metrics.get(self._band.metric)
        position = float(period.samples if self._band.axis == "samples" else period.step)
        if value is None or not abs(value) < float("inf"):  # other listeners have a word on NaN
            return
        mean = self._mean.add(position, value)
        if len(self._mean) < FEWEST_POINTS:
            return
        state = self._band.judge(position, mean)
        if state is None or state == self._state:
            self._streak = 0
            return
        self._streak += 1
        if self._streak >= PATIENCE:
            self._state, self._streak = state, 0
            self._tell(state, period, mean)

    def _tell(self, state: str, period: Period, mean: float) -> None:
        band = self._band
        low, high = band.at(period.samples if band.axis == "samples" else period.step) or (0.0, 0.0)
        where = f"{band.metric} is {mean:.4f} at step {period.step} ({period.samples:,} samples)"
        edges = f"{low:.4f} to {high:.4f} of {band.source}"
        if state == ABOVE:
            logger.warning("not on track: %s, above %s", where, edges)
        elif state == BELOW:
            logger.warning("unlike its reference: %s, below %s", where, edges)
        else:
            logger.info("on track again: %s, within %s", where, edges)
