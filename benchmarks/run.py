"""Measure this machine: ``python -m benchmarks.run``, and compare: ``python -m benchmarks.run --compare FILE…``.

Runs what ``benchmarks.yml`` describes, one process after the other, prints a table and keeps it by machine.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import REPOSITORY, at_least_one, parser_of
from benchmarks.published import (
    SYSTEMS,
    Benchmark,
    Results,
    command_of,
    describe_machine,
    figures_of,
    new_results,
    read_results,
    read_spec,
    results_path,
    run,
    system_of,
    systems_table,
    table_of,
    title_of,
    write_results,
)
from utilities.config.problems import nearest
from utilities.errors import UserError
from utilities.secrets import mask, shown_line

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 where a benchmark failed, 2 after an error that the user can fix."""
    options = parse(arguments)
    try:
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
    except UserError as error:
        if options.debug:
            raise
        print(f"error: {shown_line(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
