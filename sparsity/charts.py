"""What the report shows of a sparse encoder: explored blocks, density of each matrix, loss against FLOPs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Tuple

from reports.charts import Chart, Curve, Table, draw
from reports.run_files import RunData, is_number, last_of_each_step
from utilities.files import read_json_lines
from utilities.metric_names import LOSS, MLM_LOSS, readable

PATTERNS = "sparsity.jsonl"  # in the run folder, one line per pattern
Patterns = List[Dict[str, Any]]  # each with ``step``, ``explored``, ``density`` and ``layers``


def show_patterns(run: RunData) -> Tuple[List[Chart], List[Table]]:
    """Return the charts and tables of a sparse encoder; none of a dense one."""
    patterns = read_patterns(run.folder / PATTERNS)
    if not patterns:
        return [], []
    explored = _explored(patterns)
    charts = [draw("chart-explored", "blocks that ever existed", "share of all blocks", explored, from_zero=True)]
    loss = _loss_against_flops(run)
    if loss.steps:
        charts.append(draw("chart-flops", "loss against FLOPs", "loss in nats", [loss], axis="model FLOPs"))
    densities = _densities(patterns[-1])
    return charts, [Table("density of the patterns", densities)] if densities else []


def read_patterns(path: Path) -> Patterns:
    """Return the patterns that a file records; none if there is no such file."""
    try:
        rows = read_json_lines(path)
    except OSError:
        return []
    return last_of_each_step(row for row in rows if row and _is_pattern(row))


def _is_pattern(row: Dict[str, Any]) -> bool:
    has_numbers = is_number(row.get("step")) and is_number(row.get("explored"))
    return has_numbers and isinstance(row.get("density"), dict) and isinstance(row.get("layers"), dict)


def _explored(patterns: Patterns) -> List[Curve]:
    steps = [row["step"] for row in patterns]
    shares = [[value for value in row["layers"].values() if is_number(value)] or [0.0] for row in patterns]
    return [
        Curve("all", steps, [row["explored"] for row in patterns]),
        Curve("least of a matrix", steps, [min(row) for row in shares]),
        Curve("most of a matrix", steps, [max(row) for row in shares]),
    ]


def _loss_against_flops(run: RunData) -> Curve:
    each = run.derived.get("flops_per_sample")
    name = MLM_LOSS if MLM_LOSS in run.metric_names() else LOSS
    samples, losses = run.series(name, "samples")
    if not is_number(each):
        return Curve(name, [], [])
    return Curve(readable(name), [position * each for position in samples], losses)


def _densities(last: Dict[str, Any]) -> List[Dict[str, str]]:
    return [
        {"matrix": name, "density": f"{density:.2%}", "explored": f"{last['layers'][name]:.1%}"}
        for name, density in last["density"].items()
        if is_number(density) and is_number(last["layers"].get(name))
    ]
