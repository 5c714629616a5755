"""From a benchmark's log to its figures."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Mapping
from typing import Any

from benchmarks.published.spec import Benchmark, Metric
from utilities.errors import UserError

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
    """Every figure of a benchmark by name.

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
    """The figure that a metric makes of all its values in a log.

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
    """The value of an expression of numbers, ``+ - * / // %`` and parentheses; nothing else is computed.

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
