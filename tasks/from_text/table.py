"""The table of measured recipes, and the rule between its rows.

Time is measured in minutes of training on two cores of a Zen 4 (*units*): minutes times the machine's speed. Between
two rows every number is interpolated geometrically over the units, so that a longer time never gives a smaller model.
"""

from __future__ import annotations

import math
from typing import Callable, NamedTuple, Optional

import numpy as np


class Row(NamedTuple):
    """A measured recipe.

    Attributes:
        name: Of its configs.
        minutes: Of both trainings on two cores of a Zen 4, start and evaluation included.
        layers, hidden, initializer_range: The model's.
        short_updates, long_updates: Updates of 4,096 tokens in the first and in the second part.
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
# Held-out losses on 153 MB of English Wikipedia with 8,192 pieces, in nats, after this many units; the last one is a
# forecast. Without a word's neighbours, it is 6.25.
LOSSES = ((1.11, 4.768), (1.44, 4.518), (2.0, 4.189), (6.4, 3.5), (32.7, 2.981), (113.0, 2.753), (1_700.0, 2.31))
LEAST_UNITS = LOSSES[0][0]
BITS_OF_A_NAT = 0.364  # bits a byte for each nat of a piece's loss, measured on that text with 8,192 pieces
# A short text keeps the loss from falling as in this table: TEXT_FACTOR × updates^-TEXT_POWER bits above the floor, in
# nats, are left however long the training is, with the updates in which the text is read once. Fitted to 1 MB; the
# power is a guess.
LOSS_FLOOR, TEXT_FACTOR, TEXT_POWER, SHARPNESS = 1.834, 5.5, 0.5, 8


def interpolated(units: float, value: Callable[[Row], float]) -> float:
    """Return a number of the table between its rows, geometrically; beyond its ends, that of the end.

    Example:
        >>> interpolated(2.9, lambda row: row.hidden), round(interpolated(200, lambda row: row.hidden))
        (128.0, 296)
    """
    if units <= ROWS[0].minutes:
        return float(value(ROWS[0]))
    for low, high in zip(ROWS, ROWS[1:]):
        if units <= high.minutes:
            place = math.log(units / low.minutes) / math.log(high.minutes / low.minutes)
            return float(value(low) * (value(high) / value(low)) ** place)
    return float(value(ROWS[-1]))


def updates_in(units: float, place: Optional[float] = None) -> float:
    """Return the updates of both parts in these units by the model for them, or by that of another place."""
    return units / interpolated(place or units, lambda row: row.minutes / row.updates)


def place_for(units: float, most_updates: float) -> float:
    """Return the place in the table of the model to train for this time: its own, or that of a larger model.

    A larger model makes fewer updates in the same time. It is chosen if the model for this time would make more than
    ``most_updates``; if even the largest would, the place is its.

    Example:
        >>> round(place_for(32.7, 12_000), 1), round(place_for(32.7, 12_000 / 2.5))
        (32.7, 113)
    """
    if updates_in(units) <= most_updates:
        return units
    update, minutes = zip(*((row.minutes / row.updates, row.minutes) for row in ROWS))
    return float(np.exp(np.interp(math.log(units / most_updates), np.log(update), np.log(minutes))))


def expected_loss(units: float) -> float:
    """Return the held-out masked-LM loss, in nats, on 153 MB of English Wikipedia with 8,192 pieces.

    Example:
        >>> round(expected_loss(6.4), 3), round(expected_loss(60), 3)
        (3.5, 2.867)
    """
    times, losses = np.log(LOSSES).T
    return float(np.exp(np.interp(math.log(units), times, losses)))


def expected_bits(units: float, pass_updates: float) -> float:
    """Return the held-out loss in bits for each byte of a text like English Wikipedia.

    Args:
        units: Of the training.
        pass_updates: Updates in which the text is read once.
    """
    of_time = BITS_OF_A_NAT * (expected_loss(units) - LOSS_FLOOR)
    of_text = TEXT_FACTOR * pass_updates**-TEXT_POWER
    return BITS_OF_A_NAT * LOSS_FLOOR + (of_time**SHARPNESS + of_text**SHARPNESS) ** (1 / SHARPNESS)
