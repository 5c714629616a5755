# PYTHON_ARGCOMPLETE_OK
"""``python -m reports.compare RUN RUN…`` prints tables of runs side by side, and writes a page with their curves.

The tables have a row per quantity and a column per run; a cell is a text, or None if the run lacks the value.
"""

from __future__ import annotations

import os
import sys

if not __package__:  # started by its path, from any folder
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

import argparse
import datetime
import statistics
from bisect import bisect_right
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from reports.charts import MOST_CURVES, Chart, Curve, draw
from reports.page import final_value, steady_throughput
from reports.reference import smoothed
from reports.run_files import RunData, is_number, read_run_folder
from reports.templating import fill, number, text
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import write_atomically
from utilities.metric_names import LOSS, MLM_LOSS, is_loss, part_losses, readable
from utilities.secrets import mask
from utilities.tables import aligned

LONGEST_CELL = 48  # characters
SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)  # of the samples that all runs have seen, after which losses are compared
# Names and paths differ between any two runs and explain nothing.
NAMES_AND_PATHS = ("name", "output_dir", "save_ckpt_path", "about")
MACHINE = ("cpu", "cpu_cores_usable", "gpus", "memory_gib", "packages.tensorflow", "git_commit")

Cells = Tuple[Optional[str], ...]


class Row(NamedTuple):
    """A quantity and its value in each run."""

    name: str
    cells: Cells


class Table(NamedTuple):
    """Rows under a title."""

    title: str
    rows: List[Row]

    def page_rows(self) -> List[List[str]]:
        """Return the rows as the page shows them."""
        return [[row.name, *("–" if cell is None else cell for cell in row.cells)] for row in self.rows]


def run_labels(runs: Sequence[RunData]) -> List[str]:
    """Return a short name for each run: its folder, with as many parent folders as make the names unique."""
    paths = [run.folder.resolve() for run in runs]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path} ({number})" for number, path in enumerate(paths, start=1)]  # one folder given twice


def comparison_tables(runs: Sequence[RunData]) -> List[Table]:
    """Return all tables that have rows."""
    tables = [
        Table("Runs", _progress(runs)),
        Table("Model", _model(runs)),
        Table("Config: what differs", differences([run.config for run in runs], NAMES_AND_PATHS)),
        Table("Final values", _final(runs)),
        Table("Curves", _curves(runs)),
        Table("Machine: what differs", _machine(runs)),
    ]
    return [table for table in tables if table.rows]


def differences(mappings: Sequence[Dict[str, Any]], left_out: Sequence[str] = ()) -> List[Row]:
    """Return the keys whose values differ between mappings; a missing key gives None.

    Args:
        mappings: mappings with dotted keys.
        left_out: keys to leave out, with everything below them.
    """
    keys = dict.fromkeys(key for mapping in mappings for key in mapping if key.split(".")[0] not in left_out)
    rows = []
    for key in keys:
        cells = tuple(text(mapping[key]) if key in mapping else None for mapping in mappings)
        if len(set(cells)) > 1:
            rows.append(Row(key, cells))
    return rows


def _progress(runs: Sequence[RunData]) -> List[Row]:
    last = [run.periods[-1] if run.periods else {} for run in runs]
    rates = [steady_throughput(run)[1] for run in runs]
    rows = [
        Row("steps", tuple(map(_steps, last))),
        Row("samples", tuple(_if_number(period.get("samples"), number) for period in last)),
        Row("duration", tuple(_if_number(period.get("seconds"), _duration) for period in last)),
        Row("throughput, samples/s (median)", tuple(f"{statistics.median(r):,.1f}" if r else None for r in rates)),
    ]
    return [row for row in rows if any(cell is not None for cell in row.cells)]


def _model(runs: Sequence[RunData]) -> List[Row]:
    """Return the sizes of the models; runs of before recorded only those of their configs."""
    keys = {
        "parameters": ("trainable_parameters", ""),
        "layers": ("layers", "bert_config.num_hidden_layers"),
        "hidden size": ("hidden_size", "bert_config.hidden_size"),
        "word pieces": ("vocab_size", "bert_config.vocab_size"),
    }
    rows = []
    for name, (figure, field) in keys.items():
        sizes = [run.derived.get(figure, run.config.get(field)) for run in runs]
        rows.append(Row(name, tuple(_if_number(size, number) for size in sizes)))
    return [row for row in rows if any(cell is not None for cell in row.cells)]


def _steps(period: Dict[str, Any]) -> Optional[str]:
    done, total = period.get("step"), period.get("total_steps")
    return f"{number(done)} of {number(total)}" if is_number(total) and total != done else _if_number(done, number)


def _duration(seconds: float) -> Optional[str]:
    return str(datetime.timedelta(seconds=round(seconds))) if seconds < 1e10 else None


def _if_number(value: Any, shown: Callable[[float], Optional[str]]) -> Optional[str]:
    return shown(value) if is_number(value) else None


def _final(runs: Sequence[RunData]) -> List[Row]:
    rows = []
    for name in dict.fromkeys(name for run in runs for name in run.scores):
        scores = tuple(number(run.scores[name]) if name in run.scores else None for run in runs)
        rows.append(Row(f"{readable(name)} (evaluation)", scores))
    for name in dict.fromkeys(name for run in runs for name in run.metric_names()):
        values = tuple(_if_number(final_value(run, name), "{:.4f}".format) for run in runs)
        if any(values):
            rows.append(Row(readable(name), values))
    return rows


def shared_loss(runs: Sequence[RunData]) -> Optional[str]:
    """Return the name of a loss that every run has logged with its samples, if there is one."""
    for metric in (MLM_LOSS, LOSS):
        if all(run.series(metric, "samples")[0] for run in runs):
            return metric
    return None


def _curves(runs: Sequence[RunData]) -> List[Row]:
    """Return smoothed losses after the same numbers of samples."""
    metric = shared_loss(runs)
    if metric is None:
        return []
    curves = [run.series(metric, "samples") for run in runs]
    end = min(positions[-1] for positions, _ in curves)
    first = max(positions[0] for positions, _ in curves)
    points = [point for point in dict.fromkeys(round(end * share) for share in SHARES) if point >= first]
    means = [(positions, smoothed(positions, values)) for positions, values in curves]

    def losses_at(point: int) -> Cells:
        """Return the smoothed losses at the last positions up to ``point``."""
        return tuple(f"{losses[bisect_right(positions, point) - 1]:.4f}" for positions, losses in means)

    return [Row(f"{readable(metric)} after {point:,} samples", losses_at(point)) for point in points]


def _machine(runs: Sequence[RunData]) -> List[Row]:
    return differences([{key: run.environment.get(key) for key in MACHINE} for run in runs])


# The page


def write_page(runs: Sequence[RunData], path: Path) -> Path:
    """Write the page with the tables and the curves.

    Raises:
        UserError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_atomically(path, render(runs))
    except OSError as error:
        raise UserError(
            f"--output: cannot write {path} ({error.strerror}); name a file in a folder of yours"
        ) from error


def render(runs: Sequence[RunData]) -> str:
    """Return the page as HTML."""
    labels = run_labels(runs)
    return fill(
        "compare.html",
        title=f"{len(runs)} runs compared",
        labels=labels,
        tables=comparison_tables(runs),
        charts=_charts(runs, labels),
        note=f"The charts show the first {MOST_CURVES} of the runs." if len(runs) > MOST_CURVES else "",
    )


def _charts(runs: Sequence[RunData], labels: Sequence[str]) -> List[Chart]:
    names = dict.fromkeys(name for run in runs for name in run.metric_names())
    others = [name for name in names if name.endswith("accuracy")]
    charts = [_chart(f"chart-{index}", name, runs, labels) for index, name in enumerate([*part_losses(names), *others])]
    return [chart for chart in charts if chart is not None]


def _chart(identifier: str, name: str, runs: Sequence[RunData], labels: Sequence[str]) -> Optional[Chart]:
    """Draw a metric against samples, so that runs with different batch sizes are comparable."""
    curves = [(label, *run.series(name, "samples")) for label, run in zip(labels, runs)]
    kept: List[Tuple[str, List[float], List[float]]] = [entry for entry in curves if entry[1]][:MOST_CURVES]
    if not kept:
        return None
    title = readable(name)
    lines = [Curve(*entry) for entry in kept]
    unit = "loss in nats" if is_loss(name) else "share"
    return draw(identifier, title, unit, lines, axis="samples")


# The command


def lines(runs: Sequence[RunData]) -> Iterator[str]:
    """Return the tables as lines of text."""
    labels = run_labels(runs)
    for content in comparison_tables(runs):
        yield ""
        yield content.title
        yield from text_lines(content, labels)
    for label, run in zip(labels, runs):
        yield from (f"{label}: {mask(note)}" for note in run.notes)


def text_lines(table: Table, labels: Sequence[str]) -> Iterator[str]:
    """Yield a table as lines of text, with a column for each label."""
    grid = [["", *labels]] + [[row.name, *("-" if cell is None else cell for cell in row.cells)] for row in table.rows]
    yield from (f"  {line}" for line in aligned([[_cut(mask(cell)) for cell in row] for row in grid], "<>"))


def _cut(cell: str) -> str:
    cell = " ".join(cell.split())
    return cell if len(cell) <= LONGEST_CELL else cell[: LONGEST_CELL - 1] + "…"


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command and return its exit code."""
    parser = make_parser(
        "reports.compare",
        "Compare runs side by side: what differs in their configs, losses after the same numbers of "
        "samples, throughput, final values and scores.",
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run, finished or not")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write an HTML page with the curves as well")
    return run_main(parser, _compare, arguments)


def _compare(options: argparse.Namespace) -> None:
    if len(options.runs) < 2:
        raise UserError("one run cannot be compared; name two or more")
    runs = [read_run_folder(folder) for folder in options.runs]
    try:
        print("\n".join(lines(runs)).lstrip("\n"))
        if options.output is not None:
            print(f"\npage: {write_page(runs, options.output)}")
    except BrokenPipeError:  # the reader of the output, such as head, has exited
        sys.stderr.close()


if __name__ == "__main__":
    sys.exit(main())
