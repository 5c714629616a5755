"""What the report shows of a sparse encoder: what its patterns explored, how dense each matrix is, loss against
FLOPs."""

from __future__ import annotations

from typing import List

from utilities.report.charts import Curve, line_chart, thinned
from utilities.report.html import Markup, element, records_table
from utilities.report.run_folder import RunData, is_number


def sparsity_charts(run: RunData) -> List[Markup]:
    """Cards; none for a dense model."""
    if not run.patterns:
        return []
    cards = [_card("explored", "blocks that ever existed", "share of all blocks", _explored(run), "step")]
    loss = _loss_against_flops(run)
    if loss.steps:
        cards.append(_card("flops", "loss against FLOPs", "loss in nats", [thinned(loss)], "model FLOPs"))
    return [*cards, element("div", element("h3", "density of the patterns"), _densities(run), class_="card")]


def _card(name: str, title: str, unit: str, curves: List[Curve], axis: str) -> Markup:
    chart = line_chart(f"chart-{name}", title, unit, curves, from_zero=name == "explored", axis=axis)
    return element("div", element("h3", title), chart, class_="card")


def _explored(run: RunData) -> List[Curve]:
    """Over all matrices, and in the one that was explored least and most."""
    steps = [row["step"] for row in run.patterns]
    shares = [[value for value in row["layers"].values() if is_number(value)] or [0.0] for row in run.patterns]
    return [
        Curve("all", steps, [row["explored"] for row in run.patterns]),
        Curve("least of a matrix", steps, [min(row) for row in shares]),
        Curve("most of a matrix", steps, [max(row) for row in shares]),
    ]


def _loss_against_flops(run: RunData) -> Curve:
    each = run.derived.get("flops_per_sample")
    name = "mlm_loss" if "mlm_loss" in run.metric_names() else "loss"
    periods = [period for period in run.periods if is_number(period["metrics"].get(name))]
    if not is_number(each) or not all(is_number(period.get("samples")) for period in periods):
        return Curve(name, [], [])
    return Curve(
        name.replace("_", " "),
        [float(period["samples"]) * each for period in periods],
        [float(period["metrics"][name]) for period in periods],
    )


def _densities(run: RunData) -> Markup:
    last = run.patterns[-1]
    return records_table(
        [
            {"matrix": name, "density": f"{density:.2%}", "explored": f"{last['layers'][name]:.1%}"}
            for name, density in last["density"].items()
            if is_number(density) and is_number(last["layers"].get(name))
        ]
    )
