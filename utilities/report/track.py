"""Whether a run is on track: its loss against the band that it was held to, for the report."""

from __future__ import annotations

from typing import Optional

from utilities.report.charts import Area
from utilities.report.reference import ABOVE, FEWEST_POINTS, ON_TRACK, Band, curve, kept_band, smoothed
from utilities.report.run_folder import RunData, is_number


def track_sentence(run: RunData) -> Optional[str]:
    """How the run's loss, smoothed, lies to its reference; None where it has none."""
    band = kept_band(run.folder)
    if band is None:
        return None
    positions, values = curve(run, band.metric, band.axis)
    if len(values) < FEWEST_POINTS:
        return f"Held to {band.source}; too young to be judged."
    judged = [(place, mean, band.judge(place, mean)) for place, mean in zip(positions, smoothed(positions, values))]
    known = [entry for entry in judged if entry[2] is not None]
    if not known:
        return f"Held to {band.source}, which has no loss at these {band.axis}."
    place, mean, state = known[-1]
    low, high = band.at(place) or (mean, mean)
    where = f"{band.metric.replace('_', ' ')} {mean:.3f} at {place:,.0f} {band.axis}"
    edges = f"the reference's {low:.3f} to {high:.3f} ({band.source})"
    if state == ON_TRACK:
        return f"On track: {where}, within {edges}."
    others = [index for index, entry in enumerate(known) if entry[2] != state]
    since = known[others[-1] + 1 if others else 0][0]
    if state == ABOVE:
        return f"Not on track since {since:,.0f} {band.axis}: {where}, above {edges}."
    return f"Unlike its reference since {since:,.0f} {band.axis}: {where}, below {edges}."


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
