"""The space of a search: the values that each field of the config may take, from a JSON file.

    {"num_epochs": [2, 3, 4], "optimizer_opts.weight_decay_rate": {"low": 1e-3, "high": 0.1, "log": true}}

A list has choices, of any type that the field takes. A range is one of Optuna's: of whole numbers or of any numbers, as
the field is, with ``low`` and ``high`` and possibly ``step`` or ``log``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Generic, List, Optional, Sequence, TypeVar, Union

from optuna import Trial
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic import BaseModel, ConfigDict

from settings.config_files import read_object
from settings.flags import parse_flags
from settings.loading import resolve
from settings.problems import show, unknown_key
from settings.schema import leaves
from utilities.errors import UserError

SET_BY_SEARCH = ("name", "output_dir", "resume", "save_ckpt_path", "seeds")

Distribution = Union[CategoricalDistribution, FloatDistribution, IntDistribution]
Number = TypeVar("Number", int, float)


class Range(BaseModel, Generic[Number]):
    """A range of finite numbers, whole ones if the field is."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    low: Number
    high: Number
    step: Optional[Number] = None
    log: bool = False


def read_space(path: Path) -> Dict[str, Distribution]:
    """Return the distribution of each field in a file.

    Raises:
        UserError: the file cannot be read, or a field has no such distribution; the message names the field.
    """
    content, space = read_object(path, "--space"), {}
    if not content:
        raise UserError(f'--space: {path} names no field; write a JSON object such as {{"num_epochs": [2, 3, 4]}}')
    for name, values in content.items():
        if name not in leaves():
            raise UserError(unknown_key(name.split("."), {name: str(path)}))
        try:
            space[name] = distribution(name, values)
        except ValueError as error:
            raise UserError(f"{name} = {show(values)} ({path}): {str(error).splitlines()[-1]}") from error
    return space


def distribution(name: str, values: Any) -> Distribution:
    """Return the distribution of a field. Its choices are JSON texts, because Optuna does not store lists.

    Raises:
        ValueError: the values are not a list or a range for this field.
    """
    kind = leaves()[name].kind.name
    if name in SET_BY_SEARCH:
        raise ValueError("the search sets this field of each trial; remove it")
    if isinstance(values, list) and values:
        return CategoricalDistribution([json.dumps(value) for value in values])
    if kind not in ("int", "float"):
        raise ValueError("expected a list of values; write [first, second]")
    try:
        bounds = (Range[int] if kind == "int" else Range[float]).model_validate(values)
    except ValueError as error:
        numbers = "whole numbers" if kind == "int" else "numbers"
        raise ValueError(
            f"expected a list, or a range of {numbers} with low and high, and possibly step or log"
        ) from error
    return (IntDistribution if kind == "int" else FloatDistribution)(**bounds.model_dump(exclude_none=True))


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
