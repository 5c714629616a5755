"""The arithmetic of the comparison, and its table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

WEIGHTS_LIMIT = 0.02  # largest rms difference of a weight as a share of the rms of its change
TURNED, TURNED_LIMIT = 0.1, 0.005  # how much of the rms change a number may differ by; how many may differ by more
STEPS_LIMIT = 0.5  # rms difference in float16 steps that is rounding: a quarter of the numbers differ by one step
RATE_LIMIT = 1e-6  # relative
Arrays = Mapping[str, np.ndarray]


def float16_step(value: float) -> float:
    """Return the distance of neighbouring float16 numbers at ``value``."""
    return float(np.spacing(np.float16(abs(value))))


def logged_rounding(loss: float, summed: int, micro_batches: int = 0) -> float:
    """Return by how much their logged mean of losses may be off.

    Args:
        summed: Losses of a micro batch, of which each and the sum are rounded to float16.
        micro_batches: Whose losses are summed in float16, too; 0: in float32.
    """
    over_micro_batches = float16_step(loss * micro_batches) / micro_batches if micro_batches else 0.0
    return float16_step(loss * summed) / summed + float16_step(loss) + over_micro_batches


def rms(values: np.ndarray) -> float:
    return math.sqrt(float(np.mean(np.square(values, dtype=np.float64))))


class WeightDifference(NamedTuple):
    """The weight that differs most, apart from numbers that have turned.

    A number has turned if its change differs by more than a tenth of the rms change of its weight: its gradient in the
    first updates was rounding, of which Adam and LAMB take the sign.

    Attributes:
        share: rms of its difference as a share of the rms of its change.
        steps: rms of its difference in steps of float16 numbers of its size.
        equal: share of the numbers of all weights that are equal to the bit.
        turned: share of those that have turned.
    """

    name: str
    share: float
    steps: float
    equal: float
    turned: float

    @property
    def is_rounding(self) -> bool:
        """Whether so few numbers differ by a step that rounding explains it, however little the weight has changed."""
        return self.steps <= STEPS_LIMIT


def weight_difference(before: Arrays, theirs: Arrays, ours: Arrays, ignored: Sequence[str] = ()) -> WeightDifference:
    """Compare the weights after training; names that contain one of ``ignored`` have no gradient but rounding."""
    size = sum(value.size for value in before.values())
    equal = sum(int(np.sum(ours[name] == theirs[name])) for name in before) / size
    differences, turned = [], 0
    for name in before:
        if not any(part in name for part in ignored):
            difference, change = np.abs(ours[name] - theirs[name]), max(rms(theirs[name] - before[name]), 1e-30)
            has_turned = difference > TURNED * change
            turned += int(np.sum(has_turned))
            rest = rms(np.where(has_turned, 0.0, difference))
            steps = rest / rms(np.spacing(np.abs(theirs[name]).astype(np.float16)))
            differences.append(WeightDifference(name, rest / change, steps, equal, 0.0))
    worst = max(differences, key=lambda one: (not one.is_rounding, one.share))
    return worst._replace(turned=turned / size)


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
        if self.weights.share > WEIGHTS_LIMIT and not self.weights.is_rounding:
            found.append(f"{self.weights.name} differs by {self.weights.share:.1%} of its change")
        if self.weights.turned > TURNED_LIMIT:
            found.append(f"{self.weights.turned:.1%} of the numbers have turned")
        return found

    def difference(self, name: str) -> float:
        """Return the largest difference of a loss."""
        return float(np.max(np.abs(np.subtract(self.theirs[name], self.ours[name]))))


HEADER = ("case", "updates", "losses there", "here", "largest difference (rounding)", "rates there", "here",
          "largest difference of a weight", "equal, turned", "predictions", "counts there/here", "")  # fmt: skip


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
        f"{row.weights.share:.2%}, {row.weights.steps:.1f} steps: {row.weights.name}",
        f"{row.weights.equal:.0%}, {row.weights.turned:.2%}",
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
