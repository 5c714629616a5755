"""The parts that all benchmarks share: command line, processes, variants in alternation, medians, tables.

Variants take turns, round after round (A B C, A B C, …), so that a machine that drifts drifts for all of them; ratios
are taken within a round. Nothing here imports TensorFlow or PyTorch, so that the process that starts the others stays
small: the peak memory that Linux reports for a process is at least that of the process it was started from.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from data_utils.command_line import positive
from utilities.commands import make_parser, run_main
from utilities.environment import describe_environment
from utilities.errors import UserError
from utilities.files import PROJECT

NOTHING = "–"
LAST_LINES = 15
FRAMEWORKS = ("TF", "TORCH")  # as Transformers calls them
CPU, GPU = DEVICES = ("cpu", "gpu")
GFLOPS, GFLOPS_WINDOWS, GFLOPS_SECONDS = "gflops", 6, 0.5

Values = dict[str, float]


# --- The command line ---


class HelpFormatter(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Print the module's text as it is written, and every default."""


def benchmark(
    arguments: Mapping[str, Mapping[str, Any]], rounds: int | None = None
) -> Callable[[Callable[[argparse.Namespace], list[str]]], Callable[..., int]]:
    """Decorate a function that measures: make it a command ``python -m benchmarks.MODULE``.

    The command prints the machine, and the paragraphs and tables that the function returns.

    Args:
        arguments: options of ``add_argument``, by flag.
        rounds: the default of ``--rounds``; None: there is no such flag.
    """

    def decorate(measure: Callable[[argparse.Namespace], list[str]]) -> Callable[..., int]:
        name = Path(measure.__code__.co_filename).stem
        parser = make_parser(f"benchmarks.{name}", sys.modules[measure.__module__].__doc__ or "")
        parser.formatter_class = HelpFormatter
        for flag, settings in arguments.items():
            parser.add_argument(flag, **settings)
        if rounds is not None:
            parser.add_argument("--rounds", type=positive, default=rounds, metavar="N", help="number of measurements")

        def measure_and_report(options: argparse.Namespace) -> int:
            parts = measure(options)
            print("\n\n".join([machine(), *parts]))
            return 0

        main = functools.partial(run_main, parser, measure_and_report)
        main.parser = parser  # type: ignore[attr-defined]
        return main

    return decorate


def real_data_root() -> Path:
    """Return the folder of real data: ``BERT_REAL_DATA``, or ``../shared/data`` next to the repository."""
    return Path(os.environ.get("BERT_REAL_DATA") or PROJECT.parent / "shared" / "data")


def require(packages: Sequence[str] = (), data: Sequence[Path] = (), otherwise: str = "") -> None:
    """Check the requirements of a benchmark before it starts.

    Args:
        packages: names of packages in requirements-bench.txt.
        data: files or folders.
        otherwise: how to run the benchmark without them.
    """
    hint = f", or {otherwise}" if otherwise else ""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise UserError(f"{package} is not installed; run `pip install -r requirements-bench.txt`{hint}")
    for path in data:
        if not path.exists():
            raise UserError(f"{path} does not exist; set BERT_REAL_DATA to the folder of real data{hint}")


# --- Processes ---


def command(*arguments: object, log: Path | None = None, cores: int | None = None, **environment: str) -> Values:
    """Run one of this project's commands; return its ``seconds`` and the ``memory`` of its peak, in MiB.

    Args:
        arguments: arguments of the Python interpreter.
        log: file for its output; None: it goes to standard error.
        cores: how many it may use; None: all.
        environment: variables that differ there.
    """
    usable = sorted(os.sched_getaffinity(0))[:cores]
    line = ["taskset", "--cpu-list", ",".join(map(str, usable)), sys.executable, *map(str, arguments)]
    variables, begin = {**os.environ, **environment}, time.monotonic()
    with contextlib.nullcontext(sys.stderr) if log is None else log.open("wb") as file:
        process = subprocess.Popen(line, cwd=PROJECT, env=variables, stdout=file, stderr=subprocess.STDOUT)
        _, process.returncode, used = os.wait4(process.pid, 0)
    if process.returncode:
        if log is not None:
            _show_last_lines(log.read_text(encoding="utf-8"))
        where = "see above" if log is None else f"its last lines are above, all of them in {log}"
        raise UserError(f"{' '.join(line[3:6])} … failed; {where}")
    return {"seconds": time.monotonic() - begin, "memory": used.ru_maxrss / 1024}


def in_process(
    function: Callable[..., Any] | str, environment: Mapping[str, str] | None = None, fix: str = "", **arguments: Any
) -> Any:
    """Call a function of a benchmark in a process of its own.

    Args:
        function: a function of a module's top level, or ``module:name`` if the module is expensive to import here.
        environment: variables that differ there.
        fix: what the user can do if it fails.
        arguments: arguments of the function. JSON must be able to represent them and the result.
    """
    if isinstance(function, str):
        module, _, name = function.partition(":")
    else:
        module, name = function.__module__, function.__name__
        if module == "__main__":
            started = sys.modules["__main__"].__spec__
            assert started is not None, "benchmarks are started as modules"
            module = started.name
    words = ["-m", "benchmarks.measuring", module, name, json.dumps(arguments)]
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(
        [sys.executable, *words], cwd=PROJECT, env=variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        _show_last_lines(done.stderr)
        raise UserError(
            f"the measurement {name} {arguments} ended with status {done.returncode}; its last lines are"
            f" above{'; ' + fix if fix else ''}"
        )
    return json.loads(done.stdout.splitlines()[-1])


def only(framework: str, device: str = CPU) -> dict[str, str]:
    """Return the variables of a process in which Transformers loads one of ``FRAMEWORKS`` and not the other.

    Both are set, because a child process inherits the variables of a process that has loaded TensorFlow.

    Args:
        framework: one of ``FRAMEWORKS``.
        device: ``CPU``, which hides all GPUs, or ``GPU``.
    """
    assert framework in FRAMEWORKS
    hidden = {"CUDA_VISIBLE_DEVICES": "-1"} if device == CPU else {}
    return {**hidden, **{f"USE_{name}": str(int(name == framework)) for name in FRAMEWORKS}}


def once(file: Path, make: Callable[[Path], Any]) -> Any:
    """Return the content of a JSON file; if it does not exist, ``make`` computes it first, in its folder, emptied."""
    if not file.exists():
        shutil.rmtree(file.parent, ignore_errors=True)  # of a command that was stopped
        file.parent.mkdir(parents=True)
        content = make(file.parent)
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return json.loads(file.read_text(encoding="utf-8"))


def _show_last_lines(text: str) -> None:
    print("\n".join(text.splitlines()[-LAST_LINES:]), file=sys.stderr)


# --- Variants in alternation ---


class Measured:
    """Measured values by variant, round by round; a variant that was not measured has no values."""

    def __init__(self) -> None:
        self.rounds: dict[Hashable, list[Values]] = {}

    def add(self, variant: Hashable, values: Values) -> None:
        self.rounds.setdefault(variant, []).append(values)

    def values(self, variant: Hashable, name: str) -> list[float]:
        return [values[name] for values in self.rounds.get(variant, []) if name in values]

    def median(self, variant: Hashable, name: str) -> float:
        return median(self.values(variant, name))

    def ratios(self, variant: Hashable, other: Hashable, name: str) -> list[float]:
        """Return the ratio of a variant's value to that of another, in each round."""
        return [own / theirs for own, theirs in zip(self.values(variant, name), self.values(other, name))]

    def column(self, title: str, name: str, form: str = "{:.2f}", scale: float = 1.0) -> Column:
        return Column(title, lambda variant: [scale * value for value in self.values(variant, name)], form)


def alternate(
    variants: Mapping[Any, Callable[[], Values]],
    rounds: int,
    mirrored: bool = False,
    quiet: bool = False,
) -> Measured:
    """Measure all variants in turn, round after round, and print each value and the remaining time on standard error.

    Args:
        variants: function that measures, by variant.
        rounds: measurements of each.
        mirrored: reverse the order in every second round.
        quiet: print nothing.
    """
    measured, took = Measured(), dict.fromkeys(variants, 0.0)
    for number in range(rounds):
        order = list(reversed(variants) if mirrored and number % 2 else variants)
        for number_in_round, variant in enumerate(order, start=1):
            begin = time.monotonic()
            values = variants[variant]()
            measured.add(variant, values)
            took[variant] = time.monotonic() - begin
            left = (rounds - number - 1) * sum(took.values()) + sum(took[other] for other in order[number_in_round:])
            title = variant if isinstance(variant, str) else ", ".join(map(str, variant))
            figures = ", ".join(f"{name} {value:,.4g}" for name, value in values.items())
            remaining = f"; about {left / 60:.0f} min left" if number or number_in_round == len(variants) else ""
            if not quiet:
                print(f"round {number + 1} of {rounds}, {title}: {figures}{remaining}", file=sys.stderr, flush=True)
    return measured


def gflops(product: Callable[[], Any], shape: tuple[int, int, int]) -> Values:
    """Return the rate of matrix products of a shape (rows, inner, columns): the median of several windows."""
    product()
    rates = []
    for _ in range(GFLOPS_WINDOWS):
        count, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < GFLOPS_SECONDS:
            product()
            count += 1
        rates.append(count * 2e-9 * math.prod(shape) / (time.perf_counter() - begin))
    return {GFLOPS: median(rates)}


def spread(values: Sequence[float], form: str = "{:.2f}") -> str:
    """Return ``median (min–max)``; the value alone if there is only one, and a dash if there is none."""
    if len(values) < 2:
        return form.format(values[0]) if values else NOTHING
    number = form.split()[0]  # without a unit
    low, high = number.format(min(values)), number.format(max(values))
    return f"{form.format(median(values))} ({low}–{high})"


# --- Tables ---


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        values: returns the values of a row, whose spread is shown.
        form: format string of a value.
    """

    title: str
    values: Callable[[Any], Sequence[float]]
    form: str = "{:.2f}"


def table(corner: str, rows: Mapping[Any, str], columns: Sequence[Column]) -> str:
    """Return a table of medians and spreads.

    Args:
        corner: title of the first column.
        rows: titles by variant.
    """
    header = [corner, *(column.title for column in columns)]
    body = [[title, *(spread(column.values(key), column.form) for column in columns)] for key, title in rows.items()]
    return markdown([header, *body])


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a table; the first row is its header, the first column is text and the others are numbers."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(row: Sequence[str]) -> str:
        first, *others = (cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths)))
        return f"| {' | '.join([first, *others])} |"

    rule = f"| {'-' * widths[0]} |" + "".join(f" {'-' * (width - 1)}: |" for width in widths[1:])
    return "\n".join([line(rows[0]), rule, *(line(row) for row in rows[1:])])


def machine() -> str:
    """Return the machine and the software in one line."""
    description = describe_environment()
    versions = [f"{name} {version}" for name, version in description["packages"].items()]
    if importlib.util.find_spec("torch") is not None:
        versions.append(f"torch {importlib.metadata.version('torch')}")
    sets = ", ".join(description["cpu_instruction_sets"])
    parts = [
        f"{description['cpu']}, {description['cpu_cores_usable']} cores ({sets})",
        f"{description['memory_gib']} GiB",
        description["os"],
    ]
    return ", ".join([*description["gpus"], *parts, f"Python {description['python']}", *versions])


if __name__ == "__main__":
    print(json.dumps(getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(**json.loads(sys.argv[3]))), flush=True)
