"""The arithmetic of the comparison, and its table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

WEIGHTS_LIMIT = 0.02  # largest rms difference of a weight as a share of the rms of its change
RATE_LIMIT = 1e-6  # relative
Arrays = Mapping[str, np.ndarray]


def float16_step(value: float) -> float:
    """Return the distance of neighbouring float16 numbers at ``value``."""
    return float(np.spacing(np.float16(abs(value))))


def logged_rounding(loss: float, summed: int) -> float:
    """Return by how much their logged mean of ``summed`` losses may be off: they round the sum to float16, and each."""
    return float16_step(loss * summed) / summed + float16_step(loss)


def rms(values: np.ndarray) -> float:
    return math.sqrt(float(np.mean(np.square(values, dtype=np.float64))))


class WeightDifference(NamedTuple):
    """The weight that differs most, by its rms difference as a share of the rms of its change, and how many are equal.

    Attributes:
        equal: share of all numbers that are equal to the bit.
    """

    name: str
    share: float
    equal: float


def weight_difference(before: Arrays, theirs: Arrays, ours: Arrays, ignored: Sequence[str] = ()) -> WeightDifference:
    """Compare the weights after training; names that contain one of ``ignored`` have no gradient but rounding."""
    shares = {
        name: rms(ours[name] - theirs[name]) / max(rms(theirs[name] - before[name]), 1e-30)
        for name in before
        if not any(part in name for part in ignored)
    }
    worst = max(shares, key=lambda name: shares[name])
    equal = sum(int(np.sum(ours[name] == theirs[name])) for name in before)
    return WeightDifference(worst, shares[worst], equal / sum(value.size for value in before.values()))


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        theirs: the losses of each update there, by name.
        ours: the same here.
        rounding: how much each of these losses may be off.
        rates: the rates there and here.
        predictions: what was compared, and how much of it is equal; empty: nothing.
        counts: the counts of the programs that differ, as (there, here).
        faults: what is not as wanted.
    """

    name: str
    theirs: Mapping[str, Sequence[float]]
    ours: Mapping[str, Sequence[float]]
    rounding: Mapping[str, float]
    rates: tuple[Sequence[float], Sequence[float]]
    weights: WeightDifference
    predictions: str
    counts: Mapping[str, tuple[Any, Any]]
    faults: Sequence[str] = ()

    def problems(self) -> list[str]:
        """Return what is not as wanted."""
        found = list(self.faults)
        for name, limit in self.rounding.items():
            if len(self.theirs[name]) != len(self.ours[name]):
                found.append(f"{len(self.theirs[name])} and {len(self.ours[name])} updates")
            elif self.difference(name) > limit:
                found.append(f"{name} differs by {self.difference(name):.4f}, rounding explains {limit:.4f}")
        if len(self.rates[0]) == len(self.rates[1]) and not np.allclose(*self.rates, rtol=RATE_LIMIT, atol=0):
            found.append("rates differ")
        if self.weights.share > WEIGHTS_LIMIT:
            found.append(f"{self.weights.name} differs by {self.weights.share:.1%} of its change")
        return found

    def difference(self, name: str) -> float:
        """Return the largest difference of a loss."""
        return float(np.max(np.abs(np.subtract(self.theirs[name], self.ours[name]))))


HEADER = ("case", "updates", "losses there", "here", "largest difference (rounding)", "rates there", "here",
          "largest difference of a weight", "numbers equal", "predictions", "counts there/here", "")  # fmt: skip


def course(values: Sequence[float], digits: int = 4) -> str:
    return f"{values[0]:.{digits}f} → {values[-1]:.{digits}f}"


def line(row: Row) -> list[str]:
    """Return the cells of a row."""
    names = list(row.rounding)
    same_length = all(len(row.theirs[name]) == len(row.ours[name]) for name in names)
    differences = [f"{row.difference(name):.4f} ({row.rounding[name]:.4f})" for name in names] if same_length else ["?"]
    return [
        row.name,
        str(len(row.rates[0])),
        "; ".join(course(row.theirs[name]) for name in names),
        "; ".join(course(row.ours[name]) for name in names),
        "; ".join(differences),
        *(f"{rates[0]:.3g} → {max(rates):.3g} → {rates[-1]:.3g}" for rates in row.rates),
        f"{row.weights.share:.2%} {row.weights.name}",
        f"{row.weights.equal:.0%}",
        row.predictions,
        ", ".join(f"{name} {there}/{here}" for name, (there, here) in row.counts.items()),
        "; ".join(row.problems()) or "as wanted",
    ]


def table(rows: Sequence[Row]) -> str:
    """Return the table in Markdown."""
    lines = [HEADER, ["---"] * len(HEADER), *map(line, rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def other_counts(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the counts of the emulation that differ."""
    names = [name for name in theirs if theirs[name] != ours.get(name)]
    return {name: (theirs[name], ours.get(name)) for name in names}
