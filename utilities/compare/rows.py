"""Tables of several runs: one row a quantity, one column a run. Cells are texts; None: the run has no such value."""

from __future__ import annotations

import datetime
import statistics
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from utilities.errors import UserError
from utilities.report.html import number, text
from utilities.report.page import final_value, steady_throughput
from utilities.report.reference import TrailingMean, curve
from utilities.report.run_folder import RunData, is_number, read_run_folder

SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)  # of the way that all runs have gone, at which losses are compared
# Names and places differ between any two runs and explain nothing.
PLACES = ("name", "output_dir", "save_ckpt_path", "about")
MACHINE = ("cpu", "cpu_cores_usable", "gpus", "memory_gib", "packages.tensorflow", "git_commit")

Cells = Tuple[Optional[str], ...]


class Row(NamedTuple):
    """A quantity, and what each run has of it."""

    name: str
    cells: Cells


class Table(NamedTuple):
    """Rows under a title."""

    title: str
    rows: List[Row]


def read_runs(folders: Sequence[Path]) -> List[RunData]:
    """The runs to compare.

    Raises:
        UserError: a folder is not there, or holds no run.
    """
    runs = [read_run_folder(folder) for folder in folders]
    for run in runs:
        if not (run.periods or run.scores or run.config):
            raise UserError(f"{run.folder} holds no run (no metrics.jsonl, scores.json or resolved_config.json)")
    return runs


def labels_of(runs: Sequence[RunData]) -> List[str]:
    """A short name for each run: its folder's, with as many folders above it as tell all of them apart."""
    paths = [run.folder.resolve() for run in runs]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path} ({place})" for place, path in enumerate(paths, start=1)]  # one folder given twice


def tables_of(runs: Sequence[RunData]) -> List[Table]:
    """Everything worth comparing, tables without rows left out."""
    tables = [
        Table("Runs", _progress(runs)),
        Table("Config: what differs", differences([run.config for run in runs], PLACES)),
        Table("Final values", _final(runs)),
        Table("Curves", _curves(runs)),
        Table("Machine: what differs", _machine(runs)),
    ]
    return [table for table in tables if table.rows]


def differences(mappings: Sequence[Dict[str, Any]], left_out: Sequence[str] = ()) -> List[Row]:
    """The keys whose values are not the same everywhere; None where a mapping lacks the key."""
    keys = dict.fromkeys(key for mapping in mappings for key in mapping if key not in left_out)
    rows = []
    for key in keys:
        cells = tuple(text(mapping[key]) if key in mapping else None for mapping in mappings)
        if len(set(cells)) > 1:
            rows.append(Row(key, cells))
    return rows


def _each(name: str, runs: Sequence[RunData], value: Callable[[RunData], Optional[str]]) -> List[Row]:
    cells = tuple(value(run) for run in runs)
    return [Row(name, cells)] if any(cell is not None for cell in cells) else []


def _progress(runs: Sequence[RunData]) -> List[Row]:
    def steps(run: RunData) -> Optional[str]:
        if not run.periods:
            return None
        done, total = run.periods[-1]["step"], run.periods[-1].get("total_steps")
        return f"{number(done)} of {number(total)}" if is_number(total) and total != done else number(done)

    def duration(run: RunData) -> Optional[str]:
        seconds = run.periods[-1].get("seconds") if run.periods else None
        return str(datetime.timedelta(seconds=round(seconds))) if is_number(seconds) and seconds < 1e10 else None

    def samples(run: RunData) -> Optional[str]:
        value = run.periods[-1].get("samples") if run.periods else None
        return number(value) if is_number(value) else None

    def throughput(run: RunData) -> Optional[str]:
        values = steady_throughput(run)[1]
        return f"{statistics.median(values):,.1f}" if values else None

    rows = _each("steps", runs, steps) + _each("samples", runs, samples) + _each("duration", runs, duration)
    return rows + _each("throughput, samples/s (median)", runs, throughput)


def _final(runs: Sequence[RunData]) -> List[Row]:
    scores = dict.fromkeys(name for run in runs for name in run.scores)
    rows = []
    for name in scores:
        rows += _each(
            f"{name} (evaluation)",
            runs,
            lambda run, name=name: number(run.scores[name]) if name in run.scores else None,
        )
    for name in dict.fromkeys(name for run in runs for name in run.metric_names()):

        def final(run: RunData, name: str = name) -> Optional[str]:
            value = final_value(run, name)
            return None if value is None else f"{value:.4f}"

        rows += _each(name, runs, final)
    return rows


def shared_loss(runs: Sequence[RunData]) -> Optional[str]:
    """The loss that every run has logged against its samples; None where there is none."""
    for metric in ("mlm_loss", "loss"):
        if all(curve(run, metric, "samples")[0] for run in runs):
            return metric
    return None


def _curves(runs: Sequence[RunData]) -> List[Row]:
    """Smoothed losses after the same numbers of samples."""
    metric = shared_loss(runs)
    if metric is None:
        return []
    curves = [curve(run, metric, "samples") for run in runs]
    end = min(positions[-1] for positions, _ in curves)
    first = max(positions[0] for positions, _ in curves)
    places = [place for place in dict.fromkeys(round(end * share) for share in SHARES) if place >= first]
    return [
        Row(f"{metric} after {place:,} samples", tuple(_smoothed_at(*each, float(place)) for each in curves))
        for place in places
    ]


def _smoothed_at(positions: Sequence[float], values: Sequence[float], place: float) -> str:
    """The smoothed loss at the last point up to a place."""
    mean, last = TrailingMean(), 0.0
    for position, value in zip(positions, values):
        if position > place:
            break
        last = mean.add(position, value)
    return f"{last:.4f}"


def _machine(runs: Sequence[RunData]) -> List[Row]:
    return differences([{key: run.environment.get(key) for key in MACHINE} for run in runs])
