"""The comparison as an HTML page, with the curves of all runs in one chart a metric."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, Sequence, Tuple

from utilities.compare.rows import Table, labels_of, tables_of
from utilities.errors import UserError
from utilities.report.charts import MOST_CURVES, Curve, line_chart, thinned
from utilities.report.html import Markup, element, join, page, table
from utilities.report.page import STYLE
from utilities.report.reference import curve
from utilities.report.run_folder import RunData


def write_page(runs: Sequence[RunData], path: Path) -> Path:
    """Writes the page.

    Raises:
        UserError: it cannot be written.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(render(runs), encoding="utf-8")
        os.replace(str(temporary), str(path))
    except OSError as error:
        raise UserError(
            f"--output: cannot write {path} ({error.strerror}); name a file in a folder of yours"
        ) from error
    return path


def render(runs: Sequence[RunData]) -> str:
    """The page as HTML."""
    labels = labels_of(runs)
    title = f"{len(runs)} runs compared"
    parts: List[Markup] = [element("header", element("h1", title), element("p", ", ".join(labels), class_="soft"))]
    first, *others = tables_of(runs)
    parts += [_table(first, labels), _charts(runs, labels)]
    parts += [_table(other, labels) for other in others]
    return page(title, STYLE.read_text(encoding="utf-8"), *parts)


def _table(content: Table, labels: Sequence[str]) -> Markup:
    rows = [[row.name, *("–" if cell is None else cell for cell in row.cells)] for row in content.rows]
    return join([element("h2", content.title), table(["", *labels], rows)])


def _charts(runs: Sequence[RunData], labels: Sequence[str]) -> Markup:
    names = dict.fromkeys(name for run in runs for name in run.metric_names())
    losses = [name for name in names if name.endswith("_loss")] or [name for name in names if name == "loss"]
    others = [name for name in names if name.endswith("accuracy")]
    charts = [_chart(f"chart-{place}", name, runs, labels) for place, name in enumerate([*losses, *others])]
    drawn = [chart for chart in charts if chart]
    notes = []
    if len(runs) > MOST_CURVES:
        notes.append(element("p", f"The charts show the first {MOST_CURVES} of the runs.", class_="soft"))
    return join([element("h2", "Curves"), *notes, element("section", *drawn, class_="charts")]) if drawn else Markup("")


def _chart(identifier: str, name: str, runs: Sequence[RunData], labels: Sequence[str]) -> Markup:
    """A card with the curves of a metric against samples, over which runs with other batches can be compared."""
    curves = [(label, *curve(run, name, "samples")) for label, run in zip(labels, runs)]
    kept: List[Tuple[str, List[float], List[float]]] = [entry for entry in curves if entry[1]][:MOST_CURVES]
    if not kept:
        return Markup("")
    title = name.replace("_", " ")
    lines = [thinned(Curve(label, places, values)) for label, places, values in kept]
    unit = "loss in nats" if name.endswith("loss") else "share"
    return element(
        "div", element("h3", title), line_chart(identifier, title, unit, lines, axis="samples"), class_="card"
    )
