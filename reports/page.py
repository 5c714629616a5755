"""Writes the report of a run: its progress, its curves and their references, its config and environment."""

from __future__ import annotations

import datetime
import math
import operator
import shlex
import statistics
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from reports.charts import MOST_CURVES, Chart, Curve, Table, draw, scatter
from reports.run_files import RunData, is_number, read_run_folder
from reports.templating import fill, number
from sparsity.charts import show_patterns  # room: sparsity
from utilities.commands import shortened
from utilities.files import write_atomically
from utilities.history import END, INTERRUPT, SKIP
from utilities.metric_names import (
    LEARNING_RATE,
    LOSS_SCALE,
    MLM_LOSS,
    NSP_LOSS,
    OVERFLOWS,
    THROUGHPUT,
    part_losses,
    readable,
)

# What the rooms show of a run.
ROOMS: List[Callable[[RunData], Tuple[List[Chart], List[Table]]]] = [
    show_patterns,  # room: sparsity
]

REPORT_NAME = "report.html"
RELOAD_SECONDS = 60  # interval at which a browser reloads the page of an unfinished run
_CENTURY = 100 * 365 * 86400  # seconds; a longer duration must be damaged data


class Card(NamedTuple):
    name: str
    value: str
    note: str = ""


def write_report(run_folder: Path, live: bool = False) -> Path:
    """Write ``report.html`` into the folder of a run and return its path; browsers reload a ``live`` page."""
    run = read_run_folder(run_folder)
    page = render(run, live).encode("utf-8", "replace")  # the folder of the start may have a name that is not UTF-8
    return write_atomically(run.folder / REPORT_NAME, page)


def render(run: RunData, live: bool = False) -> str:
    """Return the page as HTML; ``live`` as for :func:`write_report`."""
    name = str(run.config.get("name") or run.folder.resolve().name)
    of_rooms = [show(run) for show in ROOMS]
    return fill(
        "report.html",
        title=f"{name} – training report",
        reload_seconds=RELOAD_SECONDS if live else None,
        name=name,
        run=run,
        command=_command(run),
        progress=_progress(run),
        written=f" Page written {datetime.datetime.now():%Y-%m-%d %H:%M:%S}.",
        masked_words=_masked_words(run),
        skipped=[row["what"] for row in run.history if row["event"] == SKIP],
        overflows=run.series(OVERFLOWS)[1],
        loss_scales=run.series(LOSS_SCALE)[1],
        cards=_cards(run),
        charts=[*_charts(run), *(chart for charts, _ in of_rooms for chart in charts)],
        tables=[table for _, tables in of_rooms for table in tables],
        mistakes=[{**each, "chart": _scatter(index, each)} for index, each in enumerate(run.mistakes)],
        config=[(key, value, run.origin(key)) for key, value in run.config.items()],
    )


def _command(run: RunData) -> str:
    """Return how the run was started; of a long list of files, the beginning."""
    command = str(run.start.get("command", ""))
    try:
        return shlex.join(shortened(shlex.split(command)))
    except ValueError:  # an edited file
        return command


def _progress(run: RunData) -> str:
    if not run.periods:
        return "No logging period has ended yet."
    last = run.periods[-1]
    step, total = last["step"], last.get("total_steps")
    seconds = last.get("seconds")
    duration = ""
    if is_number(seconds) and abs(seconds) < _CENTURY:
        duration = f" in {datetime.timedelta(seconds=round(seconds))}"
    if not is_number(total):
        return f"{step:,} steps{duration}."
    last_event = run.history[-1]["event"] if run.history else None
    if step < total and last_event == END:
        return f"Ended early: step {step:,} of {total:,}{duration}, because no later evaluation was better."
    if step < total:
        state = "Interrupted" if last_event == INTERRUPT else "In progress or stopped"
        return f"{state}: step {step:,} of {total:,}{duration}."
    return f"Complete: {step:,} steps{duration}."


class Comparison(NamedTuple):
    """A masked-LM loss and a baseline, both in nats, on the same text; ``exact`` is false for the unigram entropy."""

    text: str
    loss: float
    baseline: float
    exact: bool


def _masked_words(run: RunData) -> Optional[Comparison]:
    """Return the masked-LM loss and what the frequencies of the pieces reach, on held-out text if it was evaluated."""
    held_out, baseline = run.last_scores().get(MLM_LOSS), run.context_free(held_out=True)
    if is_number(held_out) and baseline is not None:
        return Comparison("on held-out text", held_out, baseline, True)
    training, baseline = final_mean(run, MLM_LOSS), run.context_free(held_out=False)
    reference = run.unigram_entropy() if baseline is None else baseline
    if training is None or reference is None:
        return None
    return Comparison("of training", training.value, reference, exact=baseline is not None)


def _references(run: RunData, metric: str) -> List[Tuple[str, float]]:
    """Return names and losses of baselines that ignore the context."""
    if metric == NSP_LOSS:
        return [("entropy of the labels", run.next_sentence_entropy())]
    if metric != MLM_LOSS:
        return []
    vocabulary = run.vocabulary_size()
    references = (
        ("context-free baseline", run.context_free(held_out=False)),
        ("unigram entropy", run.unigram_entropy()),
        ("uniform baseline, ln(vocabulary)", math.log(vocabulary) if vocabulary else None),
    )
    return [(name, value) for name, value in references if value is not None]


class Final(NamedTuple):
    """The mean of a metric over the updates ``first`` to ``last``."""

    value: float
    first: int
    last: int


def final_mean(run: RunData, metric: str) -> Optional[Final]:
    """Return the mean over the last twentieth of the logging periods, since a single one is noisy; None without any."""
    steps, values = run.series(metric)
    if not steps:
        return None
    count = max(1, len(steps) // 20)
    ends = [0.0, *steps][-count - 1 :]
    updates = [max(end - begin, 1) for begin, end in zip(ends, ends[1:])]
    mean = math.fsum(map(operator.mul, values[-count:], updates)) / sum(updates)
    return Final(mean, round(ends[0]) + 1, round(ends[-1]))


def _cards(run: RunData) -> List[Card]:
    """Return a card for each measure; of one that was evaluated and logged in training, the card has both values."""
    scores, names = run.last_scores(), [name for name in run.metric_names() if name not in (OVERFLOWS, LOSS_SCALE)]
    cards = []
    for name in dict.fromkeys([*scores, *names]):
        final = final_mean(run, name) if name in names else None
        training = [] if final is None else [f"{final.value:.4f}"]
        updates = "" if final is None else f"updates {final.first:,} to {final.last:,}"
        notes = [f"{label} {height:.3f}" for label, height in _references(run, name)] if training else []
        if name in run.baseline:
            notes.insert(0, f"baseline {number(run.baseline[name])}")
        if name in scores:
            notes = ["evaluation", *(f"training {value} ({updates})" for value in training), *notes]
            cards.append(Card(readable(name), number(scores[name]), ", ".join(notes)))
        elif training:
            cards.append(Card(readable(name), training[0], ", ".join([f"training, {updates}", *notes])))
    throughput = run.rates()[1]
    if throughput:
        median = f"{statistics.median(throughput):,.1f}"
        cards.append(Card("throughput", median, "samples/s, median, without compilation"))
    for unit in ("packs", "tokens"):
        rates = run.rates(f"{unit}_per_second")[1]
        if rates:
            cards.append(Card(f"{unit} per second", f"{statistics.median(rates):,.1f}", "median, without compilation"))
    if run.periods and is_number(run.periods[-1].get("samples")):
        cards.append(Card("samples seen", f"{run.periods[-1]['samples']:,}"))
    return cards


def _scatter(index: int, mistakes: Dict[str, Any]) -> Optional[Chart]:
    """Return predicted numbers against expected ones; None if the task predicts none."""
    pairs = [tuple(pair) for pair in mistakes["points"] if isinstance(pair, list) and len(pair) == 2]
    points = [(x, y) for x, y in pairs if is_number(x) and is_number(y)]
    return scatter(f"numbers-{index}", "predicted numbers", points, "expected", "predicted") if points else None


def _charts(run: RunData) -> List[Chart]:
    """Return charts with the curves of losses, accuracies, learning rate and throughput that the run has."""
    names = run.metric_names()
    losses = part_losses(names)
    charts = [(name, "loss in nats", _curves(run, [name], with_name=False), _references(run, name)) for name in losses]
    accuracies = [name for name in names if name.endswith("accuracy")]
    charts.append(("accuracy", "share", _curves(run, accuracies), []))
    others = [name for name in run.score_names() if name not in names]
    charts.append(("scores", "evaluation", _curves(run, others), []))
    charts.append(("learning rate", "learning rate", [_curve(run, LEARNING_RATE)], []))
    charts.append((THROUGHPUT, "samples/s", [Curve(THROUGHPUT, *run.rates())], []))
    drawings = []
    for index, (name, unit, curves, references) in enumerate(charts):
        drawn = [curve for curve in curves if curve.steps][:MOST_CURVES]
        if drawn:
            title = readable(name)
            drawings.append(draw(f"chart-{index}", title, unit, drawn, references, from_zero=name == THROUGHPUT))
    return drawings


def _curve(run: RunData, name: str) -> Curve:
    return Curve(readable(name), *run.series(name))


def _curves(run: RunData, names: Sequence[str], with_name: bool = True) -> List[Curve]:
    """Return the curves of training and of evaluations while training, some of which may have no steps."""
    curves: List[Curve] = []
    for name in names:
        training, evaluation = _curve(run, name), Curve("", *run.evaluation_series(name))
        beginning = f"{training.name}, " if with_name else ""
        if training.steps and evaluation.steps:
            training = training._replace(name=f"{beginning}training")
        curves += [training, evaluation._replace(name=f"{beginning}evaluation")]
    return curves
