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
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, field_validator, model_validator

from utilities.errors import UserError
from utilities.secrets import mask

# --- The file ---

SYSTEMS = ("cpu", "gpu", "ipu")
Text = Annotated[str, BeforeValidator(str)]  # also of a number or a truth value
Variant = dict[Text, Text]  # parameter → value


class Metric(BaseModel):
    """How to read a figure from the log.

    Attributes:
        regexp: its first group is the number.
        skip: values left out of a mean: the lowest, as compilation makes the first ones (the highest of a latency).
    """

    regexp: re.Pattern[str]
    skip: int = Field(0, ge=0, strict=True)
    reduction_type: Literal["mean", "final", "min", "value"] = "mean"

    @field_validator("regexp")
    @classmethod
    def _has_a_group(cls, pattern: re.Pattern[str]) -> re.Pattern[str]:
        if pattern.groups < 1:
            raise ValueError("it has no group; put the number in parentheses")
        return pattern


class Expression(BaseModel):
    """Arithmetic such as ``{throughput} * 128``."""

    expr: str


class Benchmark(BaseModel):
    """One entry; keys that are not named here are passed over.

    Attributes:
        name: key of the entry.
        folder: to run in.
        variants: of ``parameters``.
    """

    name: str
    folder: Path
    cmd: str
    variants: list[Variant] = Field([{}], alias="parameters")
    data: dict[Text, Metric] = {}
    derived: dict[Text, Expression] = {}
    output: list[tuple[Text, Text]] = []
    env: dict[Text, Text] = {}
    description: str = ""
    system: Literal["cpu", "gpu", "ipu"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, entry: dict[str, Any]) -> dict[str, Any]:
        for key in ("notebook", "requirements_file"):
            if key in entry:
                raise ValueError(f"{key} is not supported here; write the command into cmd")
        return {key: value for key, value in entry.items() if value is not None}

    @field_validator("variants", mode="before")
    @classmethod
    def _every_variant(cls, parameters: Any) -> list[Variant]:
        if isinstance(parameters, dict):
            choices = [[value.strip() for value in str(values).split(",")] for values in parameters.values()]
            return [dict(zip(parameters, chosen)) for chosen in itertools.product(*choices)]
        if isinstance(parameters, list) and parameters and all(isinstance(row, list) for row in parameters):
            names, *rows = parameters
            if all(len(row) == len(names) for row in rows):
                return [dict(zip(names, row)) for row in rows]
        raise ValueError('write a list [[names], [values], …] or a mapping {name: "value,value"}')

    @field_validator("cmd", "description")
    @classmethod
    def _one_line(cls, text: str) -> str:
        return " ".join(text.split())

    @property
    def shown(self) -> list[tuple[str, str]]:
        """Return the labels and names of the figures to show."""
        return [(label, name.strip("{}")) for label, name in self.output] or [(name, name) for name in self.data]

    @property
    def converges(self) -> bool:
        """Return whether it trains to the end, which takes days, so that it runs only when it is asked for."""
        return "_conv" in self.name

    def variant_name(self, parameters: Variant) -> str:
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
    if not isinstance(entry, dict):
        raise UserError(f"{path}: {name} is no mapping; write cmd, data and output below it")
    folder = path.parent / str(entry.get("location") or "")
    if not folder.is_dir():  # published files name folders of another repository
        folder = path.parent
    try:
        return Benchmark.model_validate({**entry, "name": name, "folder": folder})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join([name, *map(str, problem["loc"])])
        value = "missing" if problem["type"] == "missing" else repr(problem["input"])
        raise UserError(f"{path}: {key} is {value}: {problem['msg'].removeprefix('Value error, ')}") from error


# --- The command ---

PYTHONS = ("python", "python3")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def command_of(benchmark: Benchmark, parameters: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """Return the words of the command, parameters and variables filled in; Python is the one that runs this.

    Raises:
        UserError: a parameter or variable is not there.
    """
    where = f"{benchmark.name}.cmd"
    try:
        text = benchmark.cmd.format(**parameters)
        words = shlex.split(text)
    except (KeyError, IndexError, ValueError) as error:
        raise UserError(f"{where}: {error} cannot be filled in; add it to parameters, or correct cmd") from error
    known = {**environment, **benchmark.env}
    filled = [_VARIABLE.sub(lambda match: _variable(match, known, where), word) for word in words]
    return [sys.executable if word in PYTHONS else word for word in filled]


def _variable(match: re.Match[str], known: Mapping[str, str], where: str) -> str:
    name = match.group(1) or match.group(2)
    if name not in known:
        raise UserError(f"{where}: the environment variable {name} is not set; run: export {name}=/path")
    return known[name]


def run(benchmark: Benchmark, command: list[str], logs: Path, timeout: float | None = None) -> tuple[int, str]:
    """Run a command in the benchmark's folder; its output is kept in ``logs``, secrets masked.

    Returns:
        the status (124: stopped after ``timeout`` seconds), and what it wrote to standard output, then standard error.

    Raises:
        UserError: there is no such program, or the logs cannot be written.
    """
    environment = {**os.environ, **benchmark.env}
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": timeout, "check": False}
    try:
        logs.mkdir(parents=True, exist_ok=True)
        result = subprocess.run(command, cwd=benchmark.folder, env=environment, **options)
        status, streams = result.returncode, (result.stdout, result.stderr)
    except subprocess.TimeoutExpired as expired:
        status, streams = 124, (expired.stdout or b"", expired.stderr or b"")
    except OSError as error:
        raise UserError(f"{benchmark.name}: cannot run {command[0]} ({error.strerror}); correct cmd") from error
    texts = [mask(stream.decode("utf-8", "replace")) for stream in streams]
    for name, text in zip(("stdout.log", "stderr.log"), texts):
        (logs / name).write_text(text, encoding="utf-8")
    return status, "\n".join(texts)


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
    figures = {name: reduced(metric, log, f"{benchmark.name}.data.{name}") for name, metric in benchmark.data.items()}
    for name, expression in benchmark.derived.items():
        where = f"{benchmark.name}.derived.{name}: {expression.expr!r}"
        try:
            figures[name] = arithmetic(expression.expr.format(**{**parameters, **figures}))
        except (KeyError, IndexError) as error:
            raise UserError(f"{where} names {error}, which is no figure; correct it") from error
        except (ValueError, SyntaxError, ArithmeticError) as error:
            raise UserError(f"{where} cannot be computed ({error}); correct it") from error
    for label, name in benchmark.shown:
        if name not in figures:
            raise UserError(f"{benchmark.name}.output: {label} shows {name!r}, which is no figure; correct it")
    return figures


def reduced(metric: Metric, log: str, where: str) -> float:
    """Return the figure that a metric makes of all its values in a log.

    Raises:
        UserError: there are no more values than it skips, or one is no number.
    """
    try:
        values = [float(match.group(1).replace(",", "")) for match in metric.regexp.finditer(log)]
    except ValueError as error:
        raise UserError(f"{where}: {metric.regexp.pattern!r} found what is no number ({error}); correct it") from error
    if any(math.isnan(value) for value in values):
        raise UserError(f"{where} is NaN in the log; the run failed")
    if len(values) <= metric.skip:
        raise UserError(f"{where}: the log has {len(values)} values, {metric.skip} are skipped; run longer")
    if metric.reduction_type == "mean":
        kept = sorted(values, reverse=where.endswith(".latency"))[metric.skip :]
        return sum(kept) / len(kept)
    return {"final": values[-1], "value": values[0], "min": min(values)}[metric.reduction_type]


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
