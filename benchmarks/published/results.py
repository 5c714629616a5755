"""Results of one machine in one file, the newest of each variant; and tables of them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.published.machine import description, file_name_of, title_of
from benchmarks.tables import markdown
from utilities.errors import UserError

FORMAT = "benchmark-results"
NOTHING = "–"

Results = dict[str, Any]  # {format, machine, results: {variant: {output: {label: [values]}, command, date, …}}}


def new_results(machine: dict[str, Any]) -> Results:
    """No results yet."""
    return {"format": FORMAT, "version": 1, "machine": machine, "results": {}}


def results_path(folder: Path, machine: dict[str, Any]) -> Path:
    """Where the results of a machine are kept."""
    return folder / f"{file_name_of(machine)}.json"


def read_results(path: Path) -> Results:
    """Results from a file.

    Raises:
        UserError: it cannot be read, or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "it is not JSON"
        raise UserError(f"{path} cannot be read ({reason}); name a file of benchmark results") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT or not isinstance(content.get("results"), dict):
        raise UserError(f"{path} holds no benchmark results; name a file that python -m benchmarks.run wrote")
    return content


def write_results(path: Path, results: Results) -> None:
    """Writes results and, beside them, their table.

    Raises:
        UserError: the folder cannot be written to.
    """
    text = table_of(results)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for target, content in ((path, json.dumps(results, indent=2) + "\n"), (path.with_suffix(".md"), text + "\n")):
            temporary = target.with_name(f".{target.name}.{os.getpid()}")
            temporary.write_text(content, encoding="utf-8")
            os.replace(temporary, target)
    except OSError as error:
        raise UserError(f"--output: cannot write {path} ({error.strerror}); name a folder of yours") from error


def medians(result: dict[str, Any]) -> dict[str, float]:
    """The median of each figure over the repetitions."""
    return {label: median(values) for label, values in result["output"].items()}


def table_of(results: Results) -> str:
    """A machine's description and its table, a row a variant."""
    rows = {name: medians(result) for name, result in results["results"].items()}
    labels = list(dict.fromkeys(label for row in rows.values() for label in row))
    grid = [["", *labels, "repetitions", "measured"]]
    for name, row in rows.items():
        result = results["results"][name]
        repetitions = max((len(values) for values in result["output"].values()), default=0)
        figures = [shown(row[label]) if label in row else NOTHING for label in labels]
        grid.append([name, *figures, str(repetitions), result["date"][:10]])
    machine = results["machine"]
    facts = "\n".join(f"- {line}" for line in description(machine))
    return f"### {title_of(machine)}\n\n{facts}\n\n{markdown(grid)}"


def systems_table(machines: Sequence[Results]) -> str:
    """Machines side by side: a row a figure of a variant, a column a machine, and ratios to the first."""
    titles = [title_of(results["machine"]) for results in machines]
    grid = [["", *titles]]
    for name in dict.fromkeys(name for results in machines for name in results["results"]):
        found = [medians(results["results"][name]) if name in results["results"] else {} for results in machines]
        for label in dict.fromkeys(label for row in found for label in row):
            first = found[0].get(label)
            grid.append([f"{name}, {label}", *(_beside(row.get(label), first, row is found[0]) for row in found)])
    return markdown(grid)


def _beside(value: float | None, first: float | None, is_first: bool) -> str:
    if value is None:
        return NOTHING
    return shown(value) if is_first or not first else f"{shown(value)} ({value / first:.2f} ×)"


def shown(value: float) -> str:
    """Three or four digits that mean something."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
