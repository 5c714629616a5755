"""The space of a search: the values that each field of the config may take, from a JSON file.

    {"num_epochs": [2, 3, 4], "optimizer_opts.weight_decay_rate": {"low": 1e-3, "high": 0.1, "log": true}}

A list has choices, of any type that the field takes. A range is one of Optuna's: of whole numbers or of any numbers, as
the field is, with ``low`` and ``high`` and possibly ``step`` or ``log``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

from optuna import Trial
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic import BaseModel, ConfigDict

from settings.flags import parse_flags
from settings.loading import resolve
from settings.problems import expand_abbreviation, nearest, show
from settings.schema import leaves
from utilities.errors import UserError
from utilities.files import parse_json, read_regular

SET_BY_SEARCH = ("name", "output_dir", "resume", "save_ckpt_path", "seeds")

Distribution = Union[CategoricalDistribution, FloatDistribution, IntDistribution]


class WholeRange(BaseModel):
    """A range of whole numbers."""

    model_config = ConfigDict(extra="forbid", strict=True)
    low: int
    high: int
    step: int = 1
    log: bool = False


class Range(BaseModel):
    """A range of finite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    low: float
    high: float
    step: Optional[float] = None
    log: bool = False


def read_space(path: Path) -> Dict[str, Distribution]:
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
    space = {}
    for name, values in content.items():
        try:
            space[name] = distribution(name, values)
        except ValueError as error:
            reason = " ".join(str(error).splitlines()[-1].split()) or str(error)
            raise UserError(f"{name} = {show(values)} ({path}): {reason}") from error
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
    is_whole = leaf.kind.name == "int"
    if not is_whole and leaf.kind.name != "float":
        raise ValueError("expected a list of values; write [first, second]")
    try:
        bounds = (WholeRange if is_whole else Range).model_validate(values)
    except ValueError as error:
        numbers = "whole numbers" if is_whole else "numbers"
        raise ValueError(
            f"expected a list, or a range of {numbers} with low and high, and possibly step or log"
        ) from error
    return IntDistribution(**bounds.model_dump()) if is_whole else FloatDistribution(**bounds.model_dump())


def ends(values: Distribution) -> List[Any]:
    """Return all choices, or both ends of a range."""
    if isinstance(values, CategoricalDistribution):
        return [plain(choice) for choice in values.choices]
    return [values.low, values.high]


def plain(value: Any) -> Any:
    """Return the config's value of a parameter as Optuna has it."""
    return json.loads(value) if isinstance(value, str) else value


def check_space(space: Dict[str, Distribution], origin: str, task: str, arguments: Sequence[str]) -> None:
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


def suggest(trial: Trial, name: str, values: Distribution) -> None:
    """Let Optuna choose the value of a field in a trial."""
    if isinstance(values, CategoricalDistribution):
        trial.suggest_categorical(name, values.choices)
    elif isinstance(values, IntDistribution):
        trial.suggest_int(name, values.low, values.high, step=values.step, log=values.log)
    else:
        trial.suggest_float(name, values.low, values.high, step=values.step, log=values.log)


def flag(name: str, value: Any) -> str:
    """Return a value of a field as a flag: ``num_epochs``, 3 → ``--num-epochs=3``."""
    text = value if isinstance(value, str) else "none" if value is None else json.dumps(value)
    return f"{leaves()[name].flag}={text}"
