"""Measure this machine: ``python -m benchmarks.run``, and compare: ``python -m benchmarks.run --compare FILE…``.

Runs what ``benchmarks.yml`` describes, one process after the other, prints a table and keeps it by machine.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measuring import (
    NOTHING,
    REPOSITORY,
    at_least_one,
    command_line,
    facts_of_machine,
    machine,
    markdown,
    parser_of,
)
from benchmarks.published import SYSTEMS, Benchmark, command_of, figures_of, read_spec, run
from settings.problems import nearest
from utilities.errors import UserError
from utilities.files import write_atomically
from utilities.secrets import mask, shown_line

Results = dict[str, Any]  # {format, machine, results: {variant: {output: {label: [values]}, command, date, …}}}
FORMAT = "benchmark-results"
TAIL_LINES = 5  # of a failed process that are shown

# --- The machine ---


def system_of(facts: dict[str, Any]) -> str:
    """Return ``ipu``, ``gpu`` or ``cpu``: what to measure on this machine by default."""
    if importlib.util.find_spec("ipu_tensorflow_addons") is not None:
        return "ipu"
    return "gpu" if facts.get("gpus") else "cpu"


def title_of(facts: dict[str, Any]) -> str:
    """Return the machine in one line."""
    boards = [gpu.split(",")[0] for gpu in facts.get("gpus") or []]
    counted = [f"{boards.count(name)} × {name}" for name in dict.fromkeys(boards)]
    memory = facts.get("memory_gib")
    parts = [*counted, f"{facts.get('cpu')}", f"{facts.get('cpu_cores_usable')} cores"]
    return ", ".join([*parts, *([f"{memory:.0f} GiB"] if memory else [])])


def file_name_of(facts: dict[str, Any]) -> str:
    """Return a file name for the machine's results: the same for equal machines."""
    return re.sub(r"[^a-z0-9]+", "-", title_of(facts).lower()).strip("-")[:100]


# --- Results of one machine in one file, the newest of each variant, and tables of them ---


def read_results(path: Path) -> Results:
    """Return results from a file.

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
    """Write results and, beside them, their table.

    Raises:
        UserError: the folder cannot be written to.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(results, indent=2) + "\n")
        write_atomically(path.with_suffix(".md"), table_of(results) + "\n")
    except OSError as error:
        raise UserError(f"--output: cannot write {path} ({error.strerror}); name a folder of yours") from error


def medians(result: dict[str, Any]) -> dict[str, float]:
    """Return the median of each figure over the repetitions."""
    return {label: median(values) for label, values in result["output"].items()}


def table_of(results: Results) -> str:
    """Return a machine's description and its table, a row a variant."""
    labels = list(dict.fromkeys(label for result in results["results"].values() for label in result["output"]))
    grid = [["", *labels, "repetitions", "measured"]]
    for name, result in results["results"].items():
        row = medians(result)
        repetitions = max((len(values) for values in result["output"].values()), default=0)
        figures = [shown(row[label]) if label in row else NOTHING for label in labels]
        grid.append([name, *figures, str(repetitions), result["date"][:10]])
    return f"### {title_of(results['machine'])}\n\n{machine(results['machine'])}\n\n{markdown(grid)}"


def systems_table(machines: Sequence[Results]) -> str:
    """Return machines side by side: a row a figure of a variant, a column a machine, and ratios to the first."""
    grid = [["", *(title_of(results["machine"]) for results in machines)]]
    for name in dict.fromkeys(name for results in machines for name in results["results"]):
        found = [medians(results["results"][name]) if name in results["results"] else {} for results in machines]
        for label in dict.fromkeys(label for row in found for label in row):
            first = found[0].get(label)
            cells = [shown(row[label]) if label in row else NOTHING for row in found]
            for place, row in enumerate(found[1:], start=1):
                if first and label in row:
                    cells[place] += f" ({row[label] / first:.2f} ×)"
            grid.append([f"{name}, {label}", *cells])
    return markdown(grid)


def shown(value: float) -> str:
    """Return a number with three or four significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


# --- The command ---

ARGUMENTS: dict[str, dict[str, Any]] = {
    "--spec": {"type": Path, "nargs": "+", "default": [REPOSITORY / "benchmarks.yml"], "help": "files to read"},
    "--benchmark": {"nargs": "+", "metavar": "NAME", "help": "to run; None: all that this machine is meant for"},
    "--system": {"choices": SYSTEMS, "help": "run what is meant for this; None: what is here"},
    "--include-convergence": {"action": "store_true", "help": "also those that train to the end (_conv)"},
    "--repeat": {"type": at_least_one, "default": 1, "help": "processes of each; medians are shown"},
    "--timeout": {"type": float, "metavar": "SECONDS", "help": "of a process"},
    "--output": {"type": Path, "default": Path("runs/benchmarks"), "metavar": "FOLDER", "help": "of results and logs"},
    "--list": {"action": "store_true", "help": "print the commands, and run nothing"},
    "--compare": {"type": Path, "nargs": "+", "metavar": "FILE", "help": "print results of several machines"},
    "--debug": {"action": "store_true", "help": "show the traceback of an error"},
}


def chosen(options: argparse.Namespace, system: str) -> list[Benchmark]:
    """Return the benchmarks to run, in order.

    Raises:
        UserError: one that is named is not there, or nothing is left.
    """
    known: dict[str, Benchmark] = {}
    for path in options.spec:
        known.update(read_spec(path))
    if options.benchmark:
        for name in options.benchmark:
            if name not in known:
                guess = nearest(name, list(known))
                hint = f"did you mean {guess}?" if guess else f"there are: {', '.join(known)}"
                raise UserError(f"--benchmark {name}: there is no such benchmark; {hint}")
        return [known[name] for name in options.benchmark]
    kept = [
        benchmark
        for benchmark in known.values()
        if benchmark.system in (None, system) and (options.include_convergence or not benchmark.converges)
    ]
    if not kept:
        raise UserError(f"no benchmark is meant for {system}; name one with --benchmark, or a machine with --system")
    return kept


def measure(benchmark: Benchmark, parameters: dict[str, str], options: argparse.Namespace) -> dict[str, Any]:
    """Run a variant as often as asked, and return what is kept of it.

    Raises:
        UserError: it failed, or its log lacks a figure.
    """
    name = benchmark.variant_name(parameters)
    command = command_of(benchmark, parameters, os.environ)
    output: dict[str, list[float]] = {label: [] for label, _ in benchmark.shown}
    seconds = []
    for repetition in range(1, options.repeat + 1):
        print(f"{name} ({repetition} of {options.repeat})", file=sys.stderr, flush=True)
        logs = options.output / "logs" / name / str(repetition)
        started = time.perf_counter()
        status, log = run(benchmark, command, logs, options.timeout)
        if status:
            for line in log.splitlines()[-TAIL_LINES:]:
                print(f"    {line}", file=sys.stderr)
            raise UserError(f"{name} ended with status {status}; its log is in {logs}")
        figures = figures_of(benchmark, parameters, log)
        for label, figure in benchmark.shown:
            output[label].append(figures[figure])
        seconds.append(round(time.perf_counter() - started, 1))
    return {
        "benchmark": benchmark.name,
        "parameters": parameters,
        "command": mask(shlex.join(["python3" if word == sys.executable else word for word in command])),
        "output": output,
        "seconds": seconds,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def run_all(benchmarks: Sequence[Benchmark], facts: dict[str, Any], options: argparse.Namespace) -> bool:
    """Measure everything, keep each result at once, print the table, and return whether nothing failed."""
    path = options.output / f"{file_name_of(facts)}.json"
    empty = {"format": FORMAT, "version": 1, "machine": facts}
    kept: Results = {**empty, "results": read_results(path)["results"] if path.exists() else {}}
    measured: Results = {**empty, "results": {}}
    is_complete = True
    for benchmark, parameters in ((one, parameters) for one in benchmarks for parameters in one.variants):
        try:
            result = {**measure(benchmark, parameters, options), "commit": facts["git_commit"]}
        except UserError as error:
            is_complete = False
            print(f"error: {shown_line(str(error))}", file=sys.stderr)
            continue
        for results in (kept, measured):
            results["results"][benchmark.variant_name(parameters)] = result
        write_results(path, kept)
    if measured["results"]:
        print(table_of(measured))
        print(f"\nkept in {path} and {path.with_suffix('.md').name}", file=sys.stderr)
    return is_complete


def list_commands(benchmarks: Sequence[Benchmark]) -> None:
    """Print what would run."""
    for benchmark in benchmarks:
        for parameters in benchmark.variants:
            words = command_of(benchmark, parameters, {**os.environ, "DATASETS_DIR": "$DATASETS_DIR"})
            print(f"{benchmark.variant_name(parameters)}\n    {benchmark.description}\n    {shlex.join(words)}")


@command_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 where a benchmark failed, 2 after an error that the user can fix."""
    options = parser_of(run_all, ARGUMENTS).parse_args(arguments)
    if options.compare:
        print(systems_table([read_results(path) for path in options.compare]))
        return 0
    facts = facts_of_machine()
    benchmarks = chosen(options, options.system or system_of(facts))
    if options.list:
        list_commands(benchmarks)
        return 0
    print(f"measuring {title_of(facts)}", file=sys.stderr)
    return 0 if run_all(benchmarks, facts, options) else 1


if __name__ == "__main__":
    sys.exit(main())
