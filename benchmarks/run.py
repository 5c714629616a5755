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
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measuring import NOTHING, REPOSITORY, at_least_one, command_line, markdown, parser_of
from benchmarks.published import SYSTEMS, Benchmark, command_of, figures_of, read_spec, run
from utilities.config.problems import nearest
from utilities.environment import environment_facts
from utilities.errors import UserError
from utilities.files import write_atomically
from utilities.secrets import mask, shown_line

# --- The machine ---

# The facts that decide the figures; the commit and the kernel do not.
HARDWARE = ("cpu", "cpu_cores_usable", "memory_gib", "gpus")


def describe_machine() -> dict[str, Any]:
    """Return CPU, cores, memory, GPUs with their drivers, system, and versions of the libraries."""
    facts = environment_facts()
    facts["gpus"] = gpus()
    return facts


def gpus() -> list[str]:
    """Return name, memory and driver of each NVIDIA GPU, from its driver's own tool."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [f"{name}, {memory}, driver {driver}" for name, memory, driver in _fields(output)]


def _fields(output: str) -> list[list[str]]:
    rows = [[field.strip() for field in line.split(",")] for line in output.splitlines()]
    return [row for row in rows if len(row) == 3]


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


def description(facts: dict[str, Any]) -> list[str]:
    """Return the machine in full, a line a fact."""
    packages = ", ".join(f"{name} {version}" for name, version in (facts.get("packages") or {}).items())
    lines = [f"{name.replace('_', ' ')}: {_text(facts.get(name))}" for name in HARDWARE]
    lines.append(f"instruction sets: {_text(facts.get('cpu_instruction_sets'))}")
    return [*lines, f"system: {facts.get('os')}, Python {facts.get('python')}", f"libraries: {packages}"]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return "unknown" if value is None else str(value)


# --- Results of one machine in one file, the newest of each variant, and tables of them ---

FORMAT = "benchmark-results"

Results = dict[str, Any]  # {format, machine, results: {variant: {output: {label: [values]}, command, date, …}}}


def new_results(machine: dict[str, Any]) -> Results:
    """Return results that are empty."""
    return {"format": FORMAT, "version": 1, "machine": machine, "results": {}}


def results_path(folder: Path, machine: dict[str, Any]) -> Path:
    """Return the file of a machine's results."""
    return folder / f"{file_name_of(machine)}.json"


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
    text = table_of(results)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(results, indent=2) + "\n")
        write_atomically(path.with_suffix(".md"), text + "\n")
    except OSError as error:
        raise UserError(f"--output: cannot write {path} ({error.strerror}); name a folder of yours") from error


def medians(result: dict[str, Any]) -> dict[str, float]:
    """Return the median of each figure over the repetitions."""
    return {label: median(values) for label, values in result["output"].items()}


def table_of(results: Results) -> str:
    """Return a machine's description and its table, a row a variant."""
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
    """Return machines side by side: a row a figure of a variant, a column a machine, and ratios to the first."""
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
    """Return a number with three or four significant digits."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


# --- The command ---

TAIL_LINES = 5  # of a failed process that are shown


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("run", __doc__)
    parser.add_argument(
        "--spec",
        type=Path,
        nargs="+",
        default=[REPOSITORY / "benchmarks.yml"],
        metavar="FILE",
        help="default: benchmarks.yml",
    )
    parser.add_argument("--benchmark", nargs="+", metavar="NAME", help="default: all that this machine is meant for")
    parser.add_argument("--system", choices=SYSTEMS, help="run what is meant for this; default: what is here")
    parser.add_argument("--include-convergence", action="store_true", help="also those that train to the end (_conv)")
    parser.add_argument(
        "--repeat", type=at_least_one, default=1, metavar="N", help="processes of each; medians are shown"
    )
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="of a process; default: none")
    parser.add_argument(
        "--output", type=Path, default=Path("runs/benchmarks"), metavar="FOLDER", help="default: %(default)s"
    )
    parser.add_argument("--list", action="store_true", help="print the commands, and run nothing")
    parser.add_argument("--compare", type=Path, nargs="+", metavar="FILE", help="print results of several machines")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser.parse_args(arguments)


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
    output: dict[str, list[float]] = {label: [] for label, _ in benchmark.output}
    seconds = []
    for repetition in range(1, options.repeat + 1):
        print(f"{name} ({repetition} of {options.repeat})", file=sys.stderr, flush=True)
        logs = options.output / "logs" / name / str(repetition)
        outcome = run(benchmark, command, logs, options.timeout)
        if outcome.status:
            for line in outcome.log.splitlines()[-TAIL_LINES:]:
                print(f"    {line}", file=sys.stderr)
            raise UserError(f"{name} ended with status {outcome.status}; its log is in {logs}")
        figures = figures_of(benchmark, parameters, outcome.log)
        for label, figure in benchmark.output:
            output[label].append(figures[figure])
        seconds.append(round(outcome.seconds, 1))
    return {
        "benchmark": benchmark.name,
        "parameters": parameters,
        "command": mask(shlex.join(["python3" if word == sys.executable else word for word in command])),
        "output": output,
        "seconds": seconds,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def run_all(benchmarks: Sequence[Benchmark], machine: dict[str, Any], options: argparse.Namespace) -> list[str]:
    """Measure everything, keep each result at once, and print the table.

    Returns:
        one line for each benchmark that failed.
    """
    path = results_path(options.output, machine)
    results: Results = new_results(machine)
    if path.exists():
        results["results"].update(read_results(path)["results"])
    failures, measured = [], new_results(machine)
    for benchmark in benchmarks:
        for parameters in benchmark.variants:
            try:
                result = measure(benchmark, parameters, options)
            except UserError as error:
                failures.append(str(error))
                print(f"error: {shown_line(str(error))}", file=sys.stderr)
                continue
            result["commit"] = machine.get("git_commit")
            for kept in (results, measured):
                kept["results"][benchmark.variant_name(parameters)] = result
            write_results(path, results)
    if measured["results"]:
        print(table_of(measured))
        print(f"\nkept in {path} and {path.with_suffix('.md').name}", file=sys.stderr)
    return failures


def list_commands(benchmarks: Sequence[Benchmark]) -> None:
    """Print what would run."""
    for benchmark in benchmarks:
        for parameters in benchmark.variants:
            words = command_of(benchmark, parameters, {**os.environ, "DATASETS_DIR": "$DATASETS_DIR"})
            print(f"{benchmark.variant_name(parameters)}\n    {benchmark.description}\n    {shlex.join(words)}")


@command_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 where a benchmark failed, 2 after an error that the user can fix."""
    options = parse(arguments)
    if options.compare:
        print(systems_table([read_results(path) for path in options.compare]))
        return 0
    machine = describe_machine()
    benchmarks = chosen(options, options.system or system_of(machine))
    if options.list:
        list_commands(benchmarks)
        return 0
    print(f"measuring {title_of(machine)}", file=sys.stderr)
    return 1 if run_all(benchmarks, machine, options) else 0


if __name__ == "__main__":
    sys.exit(main())
