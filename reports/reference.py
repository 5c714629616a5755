"""Reads the reference band of a run's loss from a file or an earlier run, and decides whether a run is on track.

Runs are compared by samples seen, so their batch sizes may differ. Both the loss and the reference are smoothed by the
mean over the last tenth of the samples so far, which makes them lag equally while losses fall fast.
"""

from __future__ import annotations

import bisect
import json
from collections import deque
from fractions import Fraction
from pathlib import Path
from typing import Any, Deque, Dict, List, Optional, Sequence, Tuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from typing_extensions import Annotated, Literal

from reports.run_files import Points, RunData, read_run_folder
from utilities.errors import UserError
from utilities.files import read_regular
from utilities.metric_names import LOSS, MLM_LOSS

REFERENCE_NAME = "reference.json"
AXES = ("steps", "samples")
METRICS = (MLM_LOSS, LOSS)  # in order of preference
SMOOTHED_SHARE = 0.1
FEWEST_POINTS = 5  # a shorter run is not compared, and cannot be a reference
MOST_POINTS = 2000  # number of points of a band made from a run
LARGEST_CURVE = 1 << 26  # bytes of a file
PATIENCE = 3  # consecutive points of one verdict before it is accepted

ON_TRACK, ABOVE, BELOW = "on track", "above", "below"

Numbers = Annotated[List[Annotated[float, Field(gt=-1e30, lt=1e30)]], Field(min_length=1)]


class Band(BaseModel):
    """The range in which a loss should lie.

    Attributes:
        metric: name of the loss.
        axis: unit of ``positions``.
        positions: ascending.
        low, high: edges of the band at each position, interpolated linearly.
        source: origin of the band, for messages.
    """

    model_config = ConfigDict(strict=True, frozen=True)
    metric: str = METRICS[0]
    axis: Literal["samples", "steps"]
    positions: Numbers
    low: Numbers
    high: Numbers
    source: str

    @model_validator(mode="after")
    def _is_band(self) -> Band:
        fits = len(self.low) == len(self.high) == len(self.positions) and _ascending(self.positions)
        if not fits or any(low > high for low, high in zip(self.low, self.high)):
            raise ValueError("not as many edges as positions, or not in order")
        return self

    def at(self, position: float) -> Optional[Tuple[float, float]]:
        """Return low and high at a position; None outside the reference."""
        if not self.positions[0] <= position <= self.positions[-1]:
            return None
        low, high = (float(np.interp(position, self.positions, edge)) for edge in (self.low, self.high))
        return low, high

    def judge(self, position: float, value: float) -> Optional[str]:
        """Return ``on track``, ``above`` or ``below``; None outside the reference."""
        edges = self.at(position)
        if edges is None:
            return None
        return BELOW if value < edges[0] else ABOVE if value > edges[1] else ON_TRACK

    def points(self, run: RunData) -> Points:
        """Return positions and values of a run's loss as logged."""
        return run.series(self.metric, "samples" if self.axis == "samples" else "step")

    def as_json(self) -> Dict[str, Any]:
        """Return the band in the form that :func:`read_band` reads."""
        return self.model_dump()


class TrailingMean:
    """A running mean over the last tenth of the samples so far."""

    def __init__(self) -> None:
        self._positions: List[float] = []
        self._totals = [Fraction(0)]  # of the values before each position; exact, so that a huge loss leaves no trace

    def add(self, position: float, value: float) -> float:
        """Add a point and return the mean; points after it are dropped, because the run was rewound to a checkpoint."""
        last = bisect.bisect_left(self._positions, position)
        self._positions[last:], self._totals[last + 1 :] = [position], [self._totals[last] + Fraction(value)]
        first = min(bisect.bisect_right(self._positions, position * (1 - SMOOTHED_SHARE)), last)
        return float((self._totals[-1] - self._totals[first]) / (last + 1 - first))

    def __len__(self) -> int:
        return len(self._positions)


class BandMonitor:
    """Decides point by point whether a run is on track.

    A verdict needs ``PATIENCE`` consecutive smoothed losses and most of these points themselves, since one outlier
    stays in the mean for a while.

    Args:
        band: the reference.

    Attributes:
        state: the verdict; None before the first one, and outside the reference.
        since: position at which the verdict was reached.
        mean: the smoothed loss at the last point.
    """

    def __init__(self, band: Band) -> None:
        self._band = band
        self._smoothing = TrailingMean()
        self._means: Deque[Optional[str]] = deque(maxlen=PATIENCE)
        self._points: Deque[Optional[str]] = deque(maxlen=PATIENCE)
        self.state: Optional[str] = None
        self.since = 0.0
        self.mean = 0.0

    def add(self, position: float, value: float) -> Optional[str]:
        """Add a point and return the verdict."""
        self.mean = self._smoothing.add(position, value)
        if len(self._smoothing) < FEWEST_POINTS:
            return self.state
        state = self._band.judge(position, self.mean)
        self._means.append(state)
        self._points.append(self._band.judge(position, value))
        agreed = self._means.count(state) == PATIENCE and self._points.count(state) > PATIENCE // 2
        if state is None or state == self.state or agreed or (self.state is None and state == ON_TRACK):
            self.since = self.since if state == self.state else position
            self.state = state
        return self.state


def smoothed(positions: Sequence[float], values: Sequence[float]) -> List[float]:
    """Return for each point the mean over the last tenth of the positions up to it."""
    mean = TrailingMean()
    return [mean.add(position, value) for position, value in zip(positions, values)]


def load_reference(path: Path, tolerance: float) -> Band:
    """Read the band that the config names.

    Args:
        path: a run folder, or a JSON file with ``metric``, ``samples`` (or ``steps``) and either ``values`` or
            ``low`` and ``high``.
        tolerance: half the width of the band around a curve, as a share of its values.

    Raises:
        UserError: there is no such file, or it has another format.
    """
    if path.is_dir():
        return read_run_band(path, tolerance)
    try:
        content = json.loads(read_regular(path, LARGEST_CURVE))
    except OSError as error:
        fix = "name the folder of an earlier run, or a JSON file"
        raise UserError(f"reference_curve: {path} cannot be read ({error.strerror}); {fix}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"reference_curve: {path} is not JSON; name a JSON file or the folder of a run") from error
    return read_band(content, path, tolerance)


def read_run_band(folder: Path, tolerance: float) -> Band:
    """Return the band around the smoothed loss of an earlier run.

    Raises:
        UserError: the run has logged too few losses.
    """
    run = read_run_folder(folder)
    for metric in METRICS:
        positions, values = run.series(metric, "samples")
        if len(values) >= FEWEST_POINTS and _ascending(positions):
            means = smoothed(positions, values)
            every = 1 + len(means) // MOST_POINTS
            kept = slice((len(means) - 1) % every, None, every)  # with the last one
            edges = _edges(means[kept], tolerance)
            return Band(metric=metric, axis="samples", positions=positions[kept], source=str(folder), **edges)
    raise UserError(
        f"reference_curve: {folder} has no metrics.jsonl with {FEWEST_POINTS} or more losses; name a run that has"
    )


def read_band(content: Any, path: Path, tolerance: float) -> Band:
    """Read a band from JSON; see :func:`load_reference`.

    Raises:
        UserError: it has another form.
    """
    try:
        fields = {"source": str(path), **content}
        for axis in (name for name in AXES if name in fields):
            fields.update(axis=axis, positions=fields[axis])
        if "values" in fields:
            fields.update(_edges(TypeAdapter(Numbers).validate_python(fields["values"], strict=True), tolerance))
        return Band.model_validate(fields)
    except (TypeError, ValueError) as error:
        form = '{"metric": "mlm_loss", "samples": [ascending numbers], "values": [as many]}'
        raise UserError(
            f'reference_curve: {path} is not a reference; write {form}, or "low" and "high" instead of "values"'
        ) from error


def _edges(values: Sequence[float], tolerance: float) -> Dict[str, List[float]]:
    """Return the edges of the band around a curve."""
    widths = [tolerance * abs(value) for value in values]
    return {"low": [v - w for v, w in zip(values, widths)], "high": [v + w for v, w in zip(values, widths)]}


def _ascending(positions: Sequence[float]) -> bool:
    return all(a < b for a, b in zip(positions, positions[1:]))


def kept_band(folder: Path) -> Optional[Band]:
    """Read the band that a run was compared with from its folder; None if there is no readable one."""
    try:
        return Band.model_validate_json((folder / REFERENCE_NAME).read_bytes())
    except (OSError, ValueError):
        return None
