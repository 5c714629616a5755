"""The table of measured recipes, and the rule between its rows.

All minutes here are those of training on two cores of a Zen 4: on another machine, its minutes times its speed. Between
two rows every number is interpolated geometrically over them, so that a longer time never gives a smaller model.
"""

from __future__ import annotations

import math
from typing import Callable, NamedTuple, Optional

import numpy as np


class Row(NamedTuple):
    """A measured recipe: the minutes of both trainings on two cores of a Zen 4, start and evaluation included.

    In the first phase it has the short updates, in the second one the long ones, of 4,096 tokens each.
    """

    name: str
    minutes: float
    layers: int
    hidden: int
    initializer_range: float
    short_updates: int
    long_updates: int

    @property
    def updates(self) -> int:
        return self.short_updates + self.long_updates


ROWS = (
    # Recipes with fewer updates and minutes in proportion. The whole speedrun, 6.4 minutes too, ends at 3.655.
    Row("shortened speedrun", 2.9, 2, 128, 0.05, 682, 1_278),
    Row("shortened half_hour", 6.4, 2, 192, 0.04, 700, 1_650),
    Row("half_hour", 32.7, 2, 192, 0.04, 2_000, 10_000),
    Row("two_hours", 113.0, 4, 256, 0.04, 1_600, 15_000),
    # Planned, never trained to its end; its minutes are those of two hours for its operations.
    Row("small", 1_700.0, 4, 512, 0.03, 4_000, 60_000),
)
# Held-out losses on 153 MB of English Wikipedia with 8,192 pieces, in bits for each byte, after this many minutes; the
# last one is a forecast.
LOSSES = ((1.10, 1.729), (1.44, 1.652), (2.0, 1.568), (6.4, 1.279), (32.7, 1.090), (113.0, 1.006), (1_700.0, 0.844))
# A short text keeps the loss from falling as in this table: TEXT_FACTOR × updates^-TEXT_POWER bits above the floor are
# left however long the training is, with the updates in which the text is read once. Fitted to 1, 10 and 153 MB; the
# floor and the power are guesses.
LOSS_FLOOR, TEXT_FACTOR, TEXT_POWER = 0.668, 4.9, 0.5
# Where the formula was fitted: minutes, and updates in which the text is read once (1 to 153 MB, less a part).
# A longer text is no longer for a training that reads less than one pass, and is expected to be no better for others.
FITTED_MINUTES, FITTED_PASSES = (LOSSES[0][0], 118.0), (60.0, 11_500.0)


def interpolated(minutes: float, value: Callable[[Row], float]) -> float:
    """Return a number of the table between its rows, geometrically; beyond its ends, that of the end."""
    places, values = np.log([(row.minutes, value(row)) for row in ROWS]).T
    return float(np.exp(np.interp(math.log(max(minutes, ROWS[0].minutes)), places, values)))


def updates_in(minutes: float, place: Optional[float] = None) -> float:
    """Return the updates of both phases in these minutes by the model for them, or by that of another place."""
    return minutes / interpolated(place or minutes, lambda row: row.minutes / row.updates)


def place_for(minutes: float, most_updates: float) -> float:
    """Return the place in the table of the model to train for this time: its own, or that of a larger model.

    A larger model makes fewer updates in the same time. It is chosen if the model for this time would make more than
    ``most_updates``; if even the largest would, the place is its.
    """
    if updates_in(minutes) <= most_updates:
        return minutes
    of_an_update, places = zip(*((row.minutes / row.updates, row.minutes) for row in ROWS))
    return float(np.exp(np.interp(math.log(minutes / most_updates), np.log(of_an_update), np.log(places))))


def expected_bits(minutes: float, pass_updates: float) -> Optional[float]:
    """Return the held-out masked-LM loss to expect, in bits for each byte of a text like English Wikipedia.

    Beyond the longest measured training, the last row of ``LOSSES`` makes it a forecast. None stands for a shorter
    training, or a shorter text, than any that was measured.
    """
    if minutes < FITTED_MINUTES[0] or pass_updates < FITTED_PASSES[0]:
        return None
    times, losses = np.log(LOSSES).T
    of_time = float(np.exp(np.interp(math.log(minutes), times, losses))) - LOSS_FLOOR
    return LOSS_FLOOR + math.hypot(of_time, TEXT_FACTOR * min(pass_updates, FITTED_PASSES[1]) ** -TEXT_POWER)
