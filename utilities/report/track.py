"""Whether a run is on track: its loss against the band that it was held to, for the report."""

from __future__ import annotations

import math
from typing import Optional

from utilities.report.charts import Area
from utilities.report.reference import ABOVE, FEWEST_POINTS, ON_TRACK, Band, Judge, curve, kept_band
from utilities.report.run_folder import RunData, is_number


def track_sentence(run: RunData) -> Optional[str]:
    """How the run's loss, smoothed, lies to its reference; None where it has none."""
    band = kept_band(run.folder)
    if band is None:
        return None
    positions, values = curve(run, band.metric, band.axis)
    judge = Judge(band)
    for point in zip(positions, values):
        judge.add(*point)
    if judge.state is None:
        beyond = positions and len(values) >= FEWEST_POINTS and band.at(positions[-1]) is None
        reason = f"which has no loss at {positions[-1]:,.0f} {band.axis}" if beyond else "but too young to be judged"
        return f"Held to {band.source}, {reason}."
    edges = band.at(positions[-1]) or (math.nan, math.nan)
    where = f"{band.metric.replace('_', ' ')} {judge.mean:.3f} at {positions[-1]:,.0f} {band.axis}"
    reference = f"the reference's {edges[0]:.3f} to {edges[1]:.3f} ({band.source})"
    if judge.state == ON_TRACK:
        return f"On track: {where}, beside {reference}."
    since = f"since {judge.since:,.0f} {band.axis}"
    if judge.state == ABOVE:
        return f"Not on track {since}: {where}, above {reference}."
    return f"Unlike its reference {since}: {where}, below {reference}."


def band_area(run: RunData, metric: str) -> Optional[Area]:
    """The band of a metric for its chart, against steps, as far as the run is; None where there is none."""
    band = kept_band(run.folder)
    scale = _positions_per_step(run, band) if band is not None and band.metric == metric else None
    if band is None or scale is None:
        return None
    last = run.periods[-1]["step"]
    kept = [index for index, place in enumerate(band.positions) if place / scale <= last]
    if not kept:
        return None
    low, high = ([edge[index] for index in kept] for edge in (band.low, band.high))
    return Area(f"reference: {band.source}", [band.positions[index] / scale for index in kept], low, high)


def _positions_per_step(run: RunData, band: Band) -> Optional[float]:
    if band.axis == "steps":
        return 1.0
    last = run.periods[-1] if run.periods else {}
    samples, step = last.get("samples"), last.get("step")
    return samples / step if is_number(samples) and is_number(step) and samples > 0 and step > 0 else None
