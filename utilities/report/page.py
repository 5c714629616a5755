"""The report's page: what a run set out to do, how far it came, and what its numbers compare with."""

from __future__ import annotations

import datetime
import math
import os
import statistics
from pathlib import Path
from typing import Any, List, Optional, Tuple

from utilities.history import INTERRUPT, SKIP
from utilities.report.charts import Curve, line_chart, thinned
from utilities.report.html import Markup, card, element, join, mapping_table, number, page, records_table, table
from utilities.report.run_folder import RunData, is_number, read_run_folder
from utilities.report.sparsity import sparsity_charts
from utilities.report.track import band_area, track_sentence

REPORT_NAME = "report.html"
STYLE = Path(__file__).with_name("style.css")
_CENTURY = 100 * 365 * 86400


OVERFLOWS, LOSS_SCALE = "overflows", "loss_scale"  # told in a sentence
RELOAD_SECONDS = 60  # after which a browser loads the page of a run under way again


def write_report(run_folder: Path, live: bool = False) -> Path:
    """Writes ``report.html`` into a run folder, from the files there; a run under way may be reported too.

    The file replaces an older one at once, so that a browser never sees half of it.

    Args:
        run_folder: of a training run.
        live: the run is under way, so a browser that shows the page should load it again now and then.

    Returns:
        Path of the report.

    Raises:
        UserError: there is no such folder.
    """
    run = read_run_folder(run_folder)
    path = run.folder / REPORT_NAME
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    temporary.write_text(render(run, live), encoding="utf-8")
    os.replace(str(temporary), str(path))
    return path


def render(run: RunData, live: bool = False) -> str:
    """The whole page as HTML; ``live`` as for :func:`write_report`."""
    title = str(run.config.get("name") or run.folder.resolve().name)
    sections = [_header(run, title), _cards(run), _charts(run), *_tables(run)]
    reload = RELOAD_SECONDS if live else None
    return page(f"{title} – training report", STYLE.read_text(encoding="utf-8"), *sections, reload_seconds=reload)


def _header(run: RunData, title: str) -> Markup:
    parts = [element("h1", title), element("p", element("span", _progress(run)), _written(), class_="soft")]
    sentences = (_verdict(run), track_sentence(run), _skipped(run), _overflowed(run))
    parts += [element("p", sentence) for sentence in sentences if sentence]
    if run.notes:
        parts.append(element("div", *(element("p", note) for note in run.notes), class_="notes"))
    return element("header", *parts)


def _skipped(run: RunData) -> Optional[str]:
    """How many records could not be used, as the history tells it."""
    told = [row["what"] for row in run.history if row["event"] == SKIP]
    if not told:
        return None
    return f"Records that could not be used were skipped (data.on_corrupt); since the run was last started: {told[-1]}."


def _overflowed(run: RunData) -> Optional[str]:
    """Of a run in a narrow number format: how many updates overflowed, and the loss scale."""
    counts, scales = run.series(OVERFLOWS)[1], run.series(LOSS_SCALE)[1]
    if not counts:
        return None
    scale = f" The loss scale is {scales[-1]:,.0f} at last." if scales else ""
    return f"{sum(counts):,.0f} updates were left out, as their gradients overflowed.{scale}"


def _progress(run: RunData) -> str:
    if not run.periods:
        return "No logging period has ended yet."
    last = run.periods[-1]
    step, total = last["step"], last.get("total_steps")
    seconds = last.get("seconds")
    timed = is_number(seconds) and abs(seconds) < _CENTURY
    duration = f" in {datetime.timedelta(seconds=round(seconds))}" if timed else ""
    if not is_number(total):
        return f"{step:,} steps{duration}."
    if step < total:
        interrupted = bool(run.history) and run.history[-1]["event"] == INTERRUPT
        state = "Interrupted" if interrupted else "In progress or stopped"
        return f"{state}: step {step:,} of {total:,}{duration}."
    return f"Complete: {step:,} steps{duration}."


def _written() -> str:
    return f" Page written {datetime.datetime.now():%Y-%m-%d %H:%M:%S}."


def _verdict(run: RunData) -> Optional[str]:
    """What the masked-LM loss says, in one sentence."""
    loss, entropy = final_value(run, "mlm_loss"), run.unigram_entropy()
    if loss is None or entropy is None:
        return None
    if loss < entropy:
        return (
            f"The masked-LM loss is {entropy - loss:.3f} nats below the entropy of the corpus' unigram "
            "distribution: the model predicts from context."
        )
    return (
        f"The masked-LM loss is {loss - entropy:.3f} nats above the entropy of the corpus' unigram "
        "distribution, which word frequencies alone would reach: the model does not use context yet."
    )


def _references(run: RunData, metric: str) -> List[Tuple[str, float]]:
    """Losses of predictors that know nothing of the context."""
    if metric == "nsp_loss":
        return [("ln 2, a coin", math.log(2))]
    if metric != "mlm_loss":
        return []
    entropy, vocabulary = run.unigram_entropy(), run.vocabulary_size()
    references = [("unigram entropy", entropy)] if entropy is not None else []
    return references + ([("ln(vocabulary)", math.log(vocabulary))] if vocabulary else [])


def final_value(run: RunData, metric: str) -> Optional[float]:
    """Mean of the last twentieth of the periods: a single period is noisy."""
    values = run.series(metric)[1]
    return statistics.fmean(values[-max(1, len(values) // 20) :]) if values else None


def steady_throughput(run: RunData, name: str = "throughput") -> Tuple[List[int], List[float]]:
    """Steps and samples per second, or another rate, without the periods that only compiled."""
    steps, values = run.series(name)
    compiling = {period["step"] for period in run.periods if period.get("compiling")}
    kept = [(step, value) for step, value in zip(steps, values) if step not in compiling]
    return [step for step, _ in kept], [value for _, value in kept]


def _cards(run: RunData) -> Markup:
    cards = [card(name.replace("_", " "), number(value), "evaluation") for name, value in run.scores.items()]
    for name in run.metric_names():
        final = final_value(run, name)
        if final is None or name in (OVERFLOWS, LOSS_SCALE):
            continue
        references = ", ".join(f"{label} {height:.3f}" for label, height in _references(run, name))
        cards.append(card(name.replace("_", " "), f"{final:.4f}", references))
    throughput = steady_throughput(run)[1]
    if throughput:
        median = f"{statistics.median(throughput):,.1f}"
        cards.append(card("throughput", median, "samples/s, median, without compilation"))
    for unit in ("packs", "tokens"):
        rates = steady_throughput(run, f"{unit}_per_second")[1]
        if rates:
            cards.append(card(f"{unit} per second", f"{statistics.median(rates):,.1f}", "median, without compilation"))
    if run.periods and is_number(run.periods[-1].get("samples")):
        cards.append(card("samples seen", f"{run.periods[-1]['samples']:,}", ""))
    return element("section", *cards, class_="cards") if cards else Markup("")


def _charts(run: RunData) -> Markup:
    """Cards with the curves of losses, accuracies, learning rate and throughput, as far as there are any."""
    names = run.metric_names()
    losses = [name for name in names if name.endswith("_loss")] or [name for name in names if name == "loss"]
    charts = [(name, "loss in nats", [_curve(run, name)], _references(run, name)) for name in losses]
    accuracies = [_curve(run, name) for name in names if name.endswith("accuracy")]
    charts.append(("accuracy", "share", accuracies, []))
    charts.append(("learning rate", "learning rate", [_curve(run, "learning_rate")], []))
    charts.append(("throughput", "samples/s", [Curve("throughput", *steady_throughput(run))], []))
    cards = []
    for index, (name, unit, curves, references) in enumerate(charts):
        drawn = [thinned(curve) for curve in curves if curve.steps]
        if drawn:
            title = name.replace("_", " ")
            zero = name == "throughput"
            area = band_area(run, name)
            chart = line_chart(f"chart-{index}", title, unit, drawn, references, from_zero=zero, area=area)
            cards.append(element("div", element("h3", title), chart, class_="card"))
    cards += sparsity_charts(run)
    if not cards:
        return Markup("")
    return join([element("h2", "Curves"), element("section", *cards, class_="charts")])


def _curve(run: RunData, name: str) -> Curve:
    return Curve(name.replace("_", " "), *run.series(name))


def _tables(run: RunData) -> List[Markup]:
    sections = []
    if run.derived:
        table_of_derived = mapping_table("quantity", _numbers(run.derived))
        sections += [element("h2", "Derived from the config"), table_of_derived]
    if run.dataset:
        sections += [element("h2", "Data set"), mapping_table("fact", _numbers(run.dataset))]
    if run.conversion:
        sections += [
            element("h2", "Conversion of the model"),
            element("p", "What was replaced, and what became of its weights.", class_="soft"),
            records_table(run.conversion),
        ]
    if len(run.history) > 1:
        sections += [element("h2", "What happened"), records_table(run.history)]
    if run.checkpoints:
        sections += [element("h2", "Checkpoints"), records_table(run.checkpoints)]
    if run.config:
        rows = [(key, value, run.origin(key)) for key, value in run.config.items()]
        sections += [element("h2", "Resolved config"), table(["field", "value", "from"], rows)]
    if run.environment:
        sections += [element("h2", "Environment"), mapping_table("fact", run.environment)]
    return sections


def _numbers(mapping: Any) -> Any:
    return {key: number(value) for key, value in mapping.items()}
