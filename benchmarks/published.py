"""Benchmarks described by a ``benchmarks.yml`` in the form that Graphcore published for its examples (examples-utils).

A mapping of names to entries. An entry whose name holds ``options`` only lends its keys to others (YAML's ``<<``).

    cmd           command template; {parameter} is filled in, $VARIABLE expanded, and no shell is involved
    parameters    [[names], [values], [values] …]: a variant each row; or {name: "a,b", …}: every combination
    data          name → {regexp, skip, reduction_type}: what to read from the log; mean (default), final, min or value
    derived       name → {expr}: arithmetic over data and parameters, "{throughput} * 128"
    output        [[label, name or "{name}"], …]: what to show
    env, location, description    variables for the process; folder to run in, relative to the file; for people
    generated, synthetic          no data set is needed; also where the name says gen or synth
    system        our addition, other runners pass over it: cpu, gpu or ipu, the machine that it is meant for
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from utilities.errors import UserError
from utilities.secrets import mask

# --- The file ---

REDUCTIONS = ("mean", "final", "min", "value")
SYSTEMS = ("cpu", "gpu", "ipu")
UNSUPPORTED = ("notebook", "requirements_file")


@dataclass(frozen=True)
class Metric:
    """How to read a figure from the log.

    Attributes:
        pattern: its first group is the number.
        skip: values left out of a mean: the lowest, as compilation makes the first ones (the highest of a latency).
        reduction: one of ``REDUCTIONS``.
    """

    name: str
    pattern: re.Pattern[str]
    skip: int = 0
    reduction: str = "mean"


@dataclass(frozen=True)
class Benchmark:
    """One entry."""

    name: str
    command: str
    folder: Path
    variants: tuple[dict[str, str], ...] = ({},)
    metrics: tuple[Metric, ...] = ()
    derived: dict[str, str] = field(default_factory=dict)
    output: tuple[tuple[str, str], ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    description: str = ""
    system: str | None = None

    @property
    def converges(self) -> bool:
        """Return whether it trains to the end, which takes days, so that it runs only when it is asked for."""
        return "_conv" in self.name

    def variant_name(self, parameters: dict[str, str]) -> str:
        """Return ``name_a_1_b_2``, parameters in alphabetical order."""
        return "_".join([self.name, *(f"{key}_{parameters[key]}" for key in sorted(parameters))])


def read_spec(path: Path) -> dict[str, Benchmark]:
    """Return all benchmarks of a file by name, in its order.

    Raises:
        UserError: the file cannot be read, or an entry is not of the form.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"--spec: {path} cannot be read ({error.strerror}); name a benchmarks.yml") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" line {mark.line + 1}" if mark else ""
        raise UserError(f"{path}:{place} is not valid YAML; correct it there") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds no benchmarks; write NAME: {{cmd: …}}")
    return {
        str(name): _benchmark(path, str(name), entry) for name, entry in content.items() if "options" not in str(name)
    }


def _benchmark(path: Path, name: str, entry: Any) -> Benchmark:
    where = f"{path}: {name}"
    if not isinstance(entry, dict):
        raise UserError(f"{where} is no mapping; write cmd, data and output below it")
    for key in UNSUPPORTED:
        if key in entry:
            raise UserError(f"{where}.{key}: is not supported here; write the command into cmd")
    command = _kind(entry, "cmd", str, where, required=True)
    location = _kind(entry, "location", str, where) or ""
    folder = path.parent / location
    system = entry.get("system")
    if system is not None and system not in SYSTEMS:
        raise UserError(f"{where}.system is {system!r}; write one of {', '.join(SYSTEMS)}")
    metrics = tuple(_metric(f"{where}.data.{key}", str(key), value) for key, value in _mapping(entry, "data", where))
    return Benchmark(
        name=name,
        command=" ".join(command.split()),
        folder=folder if folder.is_dir() else path.parent,  # published files name folders of another repository
        variants=_variants(entry.get("parameters"), where),
        metrics=metrics,
        derived={str(key): _expression(f"{where}.derived.{key}", v) for key, v in _mapping(entry, "derived", where)},
        output=_output(entry.get("output") or [[metric.name, metric.name] for metric in metrics], where),
        environment={str(key): str(value) for key, value in _mapping(entry, "env", where)},
        description=" ".join((_kind(entry, "description", str, where) or "").split()),
        system=system,
    )


def _kind(entry: dict[str, Any], key: str, kind: type, where: str, required: bool = False) -> Any:
    value = entry.get(key)
    if value is None and not required:
        return None
    if not isinstance(value, kind):
        raise UserError(f"{where}.{key} is {'missing' if value is None else repr(value)}; write a text")
    return value


def _mapping(entry: dict[str, Any], key: str, where: str) -> list[tuple[Any, Any]]:
    value = entry.get(key) or {}
    if not isinstance(value, dict):
        raise UserError(f"{where}.{key} is {value!r}; write a mapping of names")
    return list(value.items())


def _metric(where: str, name: str, content: Any) -> Metric:
    regexp = content.get("regexp") if isinstance(content, dict) else None
    if not isinstance(regexp, str):
        raise UserError(f"{where}.regexp is missing; write a regular expression whose first group is the number")
    try:
        pattern = re.compile(regexp)
    except re.error as error:
        raise UserError(f"{where}.regexp: {regexp!r} is no regular expression ({error}); correct it") from error
    if pattern.groups < 1:
        raise UserError(f"{where}.regexp: {regexp!r} has no group; put the number in parentheses")
    skip, reduction = content.get("skip", 0), content.get("reduction_type", "mean")
    if type(skip) is not int or skip < 0:
        raise UserError(f"{where}.skip is {skip!r}; write how many values to leave out, 0 or more")
    if reduction not in REDUCTIONS:
        raise UserError(f"{where}.reduction_type is {reduction!r}; write one of {', '.join(REDUCTIONS)}")
    return Metric(name, pattern, skip, reduction)


def _expression(where: str, content: Any) -> str:
    expression = content.get("expr") if isinstance(content, dict) else None
    if not isinstance(expression, str):
        raise UserError(f'{where}.expr is missing; write arithmetic such as "{{throughput}} * 128"')
    return expression


def _variants(parameters: Any, where: str) -> tuple[dict[str, str], ...]:
    if parameters is None:
        return ({},)
    if isinstance(parameters, dict):
        names = [str(name) for name in parameters]
        choices = [[value.strip() for value in str(values).split(",")] for values in parameters.values()]
        return tuple(dict(zip(names, combination)) for combination in itertools.product(*choices))
    if isinstance(parameters, list) and parameters and all(isinstance(row, list) for row in parameters):
        names, *rows = parameters
        if all(len(row) == len(names) for row in rows):
            return tuple(dict(zip(map(str, names), map(str, row))) for row in rows)
    raise UserError(f'{where}.parameters: write a list [[names], [values], …] or a mapping {{name: "value,value"}}')


def _output(pairs: Any, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise UserError(f"{where}.output: write a list of [label, name]")
    return tuple((str(label), str(name).strip("{}")) for label, name in pairs)


# --- The command ---

PYTHONS = ("python", "python3")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True)
class Outcome:
    """How a process ended.

    Attributes:
        log: what it wrote to standard output, then to standard error.
        seconds: from start to end.
    """

    status: int
    log: str
    seconds: float


def command_of(benchmark: Benchmark, parameters: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """Return the words of the command, parameters and variables filled in; Python is the one that runs this.

    Raises:
        UserError: a parameter or variable is not there.
    """
    where = f"{benchmark.name}.cmd"
    try:
        text = benchmark.command.format(**parameters)
        words = shlex.split(text)
    except (KeyError, IndexError, ValueError) as error:
        raise UserError(f"{where}: {error} cannot be filled in; add it to parameters, or correct cmd") from error
    known = {**environment, **benchmark.environment}
    filled = [_VARIABLE.sub(lambda match: _variable(match, known, where), word) for word in words]
    return [sys.executable if word in PYTHONS else word for word in filled]


def _variable(match: re.Match[str], known: Mapping[str, str], where: str) -> str:
    name = match.group(1) or match.group(2)
    if name not in known:
        raise UserError(f"{where}: the environment variable {name} is not set; run: export {name}=/path")
    return known[name]


def run(benchmark: Benchmark, command: list[str], logs: Path, timeout: float | None = None) -> Outcome:
    """Run a command in the benchmark's folder; its output is kept in ``logs``, secrets masked.

    Raises:
        UserError: there is no such program, or the logs cannot be written.
    """
    started = time.perf_counter()
    try:
        logs.mkdir(parents=True, exist_ok=True)
        result = subprocess.run(
            command,
            cwd=benchmark.folder,
            env={**os.environ, **benchmark.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        status, out, errors = result.returncode, result.stdout, result.stderr
    except subprocess.TimeoutExpired as expired:
        status, out, errors = 124, expired.stdout or b"", expired.stderr or b""
    except OSError as error:
        raise UserError(f"{benchmark.name}: cannot run {command[0]} ({error.strerror}); correct cmd") from error
    texts = [mask(stream.decode("utf-8", "replace")) for stream in (out, errors)]
    for name, text in zip(("stdout.log", "stderr.log"), texts):
        (logs / name).write_text(text, encoding="utf-8")
    return Outcome(status, "\n".join(texts), time.perf_counter() - started)


# --- From a log to figures ---

_OPERATIONS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def figures_of(benchmark: Benchmark, parameters: Mapping[str, str], log: str) -> dict[str, float]:
    """Return every figure of a benchmark by name.

    Raises:
        UserError: the log lacks one, or an expression cannot be computed.
    """
    figures = {metric.name: reduced(metric, log, benchmark.name) for metric in benchmark.metrics}
    for name, expression in benchmark.derived.items():
        where = f"{benchmark.name}.derived.{name}"
        try:
            figures[name] = arithmetic(expression.format(**{**parameters, **figures}))
        except (KeyError, IndexError) as error:
            raise UserError(f"{where}: {expression!r} names {error}, which is no figure; correct it") from error
        except (ValueError, SyntaxError, ArithmeticError) as error:
            raise UserError(f"{where}: {expression!r} cannot be computed ({error}); correct it") from error
    for label, name in benchmark.output:
        if name not in figures:
            raise UserError(f"{benchmark.name}.output: {label} shows {name!r}, which is no figure; correct it")
    return figures


def reduced(metric: Metric, log: str, benchmark: str) -> float:
    """Return the figure that a metric makes of all its values in a log.

    Raises:
        UserError: there are no more values than it skips, or one is no number.
    """
    where = f"{benchmark}.data.{metric.name}"
    try:
        values = [float(match.group(1).replace(",", "")) for match in metric.pattern.finditer(log)]
    except ValueError as error:
        raise UserError(f"{where}: {metric.pattern.pattern!r} found what is no number ({error}); correct it") from error
    if any(math.isnan(value) for value in values):
        raise UserError(f"{where} is NaN in the log; the run failed")
    if len(values) <= metric.skip:
        raise UserError(f"{where}: the log has {len(values)} values, {metric.skip} are skipped; run longer")
    if metric.reduction == "final":
        return values[-1]
    if metric.reduction == "value":
        return values[0]
    if metric.reduction == "min":
        return min(values)
    kept = sorted(values, reverse=metric.name == "latency")[metric.skip :]
    return sum(kept) / len(kept)


def arithmetic(expression: str) -> float:
    """Return the value of an expression of numbers, ``+ - * / // %`` and parentheses; nothing else is computed.

    Raises:
        ValueError: it holds something else.
        ArithmeticError, SyntaxError: it has no value.

    Example:
        >>> arithmetic("2 * (3 + 0.5)")
        7.0
    """
    return float(_value(ast.parse(expression.strip(), mode="eval").body))


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.operand))
    raise ValueError("only numbers, + - * / // % and parentheses")
