"""The space of a search: the values that each field of the config may take, from a JSON file.

    {"num_epochs": [2, 3, 4], "optimizer_opts.weight_decay_rate": {"low": 1e-3, "high": 0.1, "log": true}}

A list has choices, of any type that the field takes. A range is one of Optuna's: of whole numbers or of any numbers, as
the field is, with ``low`` and ``high`` and possibly ``step`` or ``log``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, List, Sequence, Union

from optuna import Trial
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from settings.flags import parse_flags
from settings.loading import resolve
from settings.problems import expand_abbreviation, nearest, show
from settings.schema import leaves
from utilities.errors import UserError
from utilities.files import parse_json, read_regular

SET_BY_SEARCH = ("name", "output_dir", "resume", "save_ckpt_path", "seeds")

Distribution = Union[CategoricalDistribution, FloatDistribution, IntDistribution]
Space = Dict[str, Distribution]


def read_space(path: Path) -> Space:
    """Return the distribution of each field in a file.

    Raises:
        UserError: the file cannot be read, or a field has no such distribution; the message names the field.
    """
    fix = 'write a JSON object such as {"num_epochs": [2, 3, 4]}'
    try:
        content = parse_json(read_regular(path))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"--space: {path} cannot be read ({reason}); {fix}") from error
    if not isinstance(content, dict) or not content:
        raise UserError(f"--space: {path} contains {show(content)}; {fix}")
    space: Space = {}
    for name, values in content.items():
        try:
            space[name] = distribution(name, values)
        except ValueError as error:
            raise UserError(f"{name} = {show(values)} ({path}): {error}") from error
    return space


def distribution(name: str, values: Any) -> Distribution:
    """Return the distribution of a field. Its choices are JSON texts, because Optuna does not store lists.

    Raises:
        ValueError: there is no such field, or the values are not a list or a range for it.
    """
    leaf = leaves().get(name)
    if leaf is None:
        guess = expand_abbreviation(name) or nearest(name, list(leaves()))
        raise ValueError("unknown field; " + (f"did you mean {guess}?" if guess else "correct its name"))
    if name in SET_BY_SEARCH:
        raise ValueError("the search sets this field of each trial; remove it")
    if isinstance(values, list) and values:
        return CategoricalDistribution([json.dumps(value) for value in values])
    if leaf.kind.name not in ("int", "float"):
        raise ValueError("expected a list of values; write [first, second]")
    is_whole = leaf.kind.name == "int"
    if not is_range(values, is_whole):
        numbers = "whole numbers" if is_whole else "numbers"
        raise ValueError(f"expected a list, or a range of {numbers} with low and high, and possibly step or log")
    return IntDistribution(**values) if is_whole else FloatDistribution(**values)


def is_range(values: Any, is_whole: bool) -> bool:
    """Return whether values are the arguments of a range; Optuna checks that they fit together."""
    if not isinstance(values, dict) or not {"low", "high"} <= set(values) <= {"low", "high", "step", "log"}:
        return False
    types = (int,) if is_whole else (int, float)
    bounds = [bound for key, bound in values.items() if key != "log"]
    are_numbers = all(type(bound) in types and math.isfinite(bound) for bound in bounds)
    return are_numbers and isinstance(values.get("log", False), bool)


def ends(values: Distribution) -> List[Any]:
    """Return all choices, or both ends of a range."""
    if isinstance(values, CategoricalDistribution):
        return [plain(choice) for choice in values.choices]
    return [values.low, values.high]


def plain(value: Any) -> Any:
    """Return the config's value of a parameter as Optuna has it."""
    return json.loads(value) if isinstance(value, str) else value


def check_space(space: Space, origin: str, task: str, arguments: Sequence[str]) -> None:
    """Check all choices and both ends of all ranges, each with the first values of the other fields.

    Args:
        origin: the file of the space, for messages.
        task: a name in ``model.tasks.TASKS``.
        arguments: the arguments of the training command.

    Raises:
        UserError: the config would be refused; the message names the field.
    """
    options, given = parse_flags(task, arguments)
    first = {name: ends(values)[0] for name, values in space.items()}
    for name, values in space.items():
        for value in ends(values):
            resolve(task, options.config or (), {**given, **first, name: value}, origin)


def suggest(trial: Trial, name: str, values: Distribution) -> Any:
    """Return the value of a field in a trial."""
    if isinstance(values, CategoricalDistribution):
        return plain(trial.suggest_categorical(name, values.choices))
    if isinstance(values, IntDistribution):
        return trial.suggest_int(name, values.low, values.high, step=values.step, log=values.log)
    return trial.suggest_float(name, values.low, values.high, step=values.step, log=values.log)


def flag(name: str, value: Any) -> str:
    """Return a value of a field as a flag.

    Example:
        >>> flag("num_epochs", 3)
        '--num-epochs=3'
    """
    text = value if isinstance(value, str) else "none" if value is None else json.dumps(value)
    return f"{leaves()[name].flag}={text}"
