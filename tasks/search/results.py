"""The results of a search: a table of its trials as text and on a page, and the config of the best trial."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import List, Optional, Tuple

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from reports.charts import Curve, chart_card
from reports.compare import Row, Table, aligned, table_section
from reports.html import Markup, element, number, page
from reports.page import REPORT_NAME, STYLE
from settings.loading import load_config
from tasks.search.space import flag, plain
from tasks.search.trials import Search
from utilities.files import write_atomically
from utilities.secrets import mask_value

PAGE, BEST = "search.html", "best.json"


def write_results(search: Search, task: str) -> List[str]:
    """Write the page of trials and the best config, and return lines for the terminal."""
    trials = ranked(search)
    table = Table(f"{len(trials)} trials", [row(search, trial) for trial in trials])
    lines = ["", *aligned(table, headings(search)), ""]
    if trials and trials[0].state == TrialState.COMPLETE:
        best = trials[0]
        about = f"{search.path(best.number)}: {search.metric} {number(best.value)}, the best of {len(trials)} trials"
        values = [flag(name, plain(value)) for name, value in best.params.items()]
        config = load_config(task, [*search.command[1:], *values]).config.model_dump(mode="json", exclude={"extends"})
        kept = {name: value for name, value in mask_value(config).items() if name not in ("name", "resume")}
        path = write_atomically(search.folder / BEST, json.dumps({**kept, "about": about}, indent=2) + "\n")
        lines += [f"best: {about}", f"its config: {path}"]
    return [*lines, f"page: {write_atomically(search.folder / PAGE, render(search, table, trials))}"]


def ranked(search: Search) -> List[FrozenTrial]:
    """Return the completed trials, the best first, then the others in their order."""
    sign = 1 if search.study.direction == StudyDirection.MINIMIZE else -1

    def rank(trial: FrozenTrial) -> Tuple[bool, float]:
        if trial.state == TrialState.COMPLETE and trial.value is not None:
            return False, sign * trial.value
        return True, trial.number

    return sorted(search.study.trials, key=rank)


def headings(search: Search) -> List[str]:
    """Return the columns of the table: the score, the fields (without section if unique), and the state."""
    keys = [name.split(".")[-1] for name in search.space]
    fields = [key if keys.count(key) == 1 else name for key, name in zip(keys, search.space)]
    return [search.metric, *fields, "state"]


def row(search: Search, trial: FrozenTrial) -> Row:
    """Return the row of a trial; its score is the last one if the trial was pruned."""
    score = None if trial.value is None else number(trial.value)
    values = [number(plain(trial.params[name])) if name in trial.params else None for name in search.space]
    error = trial.user_attrs.get("error")
    state = f"failed: {error}" if error else trial.state.name.lower()
    return Row(search.path(trial.number).name, (score, *values, state))


def render(search: Search, table: Table, trials: List[FrozenTrial]) -> str:
    """Return the page as HTML; the name of a trial in this folder is a link to its report."""
    names: List[str] = []
    for each in table.rows:
        has_report = (search.folder / each.name / REPORT_NAME).exists()
        names.append(element("a", each.name, href=f"{each.name}/{REPORT_NAME}") if has_report else each.name)
    linked = table._replace(rows=[each._replace(name=name) for each, name in zip(table.rows, names)])
    title = f"Search {search.folder.name}"
    header = element("header", element("h1", title), element("p", " ".join(search.command), class_="soft"))
    sections = [header, chart(search, trials), table_section(linked, headings(search))]
    return page(title, STYLE.read_text(encoding="utf-8"), *(section for section in sections if section))


def chart(search: Search, trials: List[FrozenTrial]) -> Optional[Markup]:
    """Return a chart of the scores of completed trials, and of the best score so far."""
    scores = {
        each.number: each.value for each in trials if each.state == TrialState.COMPLETE and each.value is not None
    }
    if not scores:
        return None
    numbers = sorted(scores)
    values = [scores[each] for each in numbers]
    better = min if search.study.direction == StudyDirection.MINIMIZE else max
    curves = [Curve(search.metric, numbers, values), Curve("best so far", numbers, list(accumulate(values, better)))]
    return element("section", chart_card("scores", search.metric, search.metric, curves, axis="trial"), class_="charts")
