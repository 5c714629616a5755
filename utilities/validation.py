"""Reads files that pydantic checks, compares what processes must share, and says in one line what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, Optional, Type, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from utilities.errors import UserError
from utilities.files import read_json_object
from utilities.tables import short

Content = TypeVar("Content", bound=BaseModel)


class Strict(BaseModel):
    """A part of a file: a value of another type is refused, and further keys are allowed."""

    model_config = ConfigDict(strict=True, frozen=True)


def read_checked(path: Path, kind: Type[Content]) -> Content:
    """Return the checked content of a JSON file, or raise a ``UserError``."""
    try:
        return kind.model_validate(read_json_object(path))
    except ValidationError as error:
        raise UserError(f"{path}: {first_problem(error)}; download it again") from error


def first_problem(error: ValidationError) -> str:
    """Return the first problem: ``files[0].records is 'many', but input should be a valid integer``."""
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        return f"is not valid JSON ({problem['ctx']['error']})"
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")
    if problem["type"] == "missing":
        return f"{place} is missing"
    reason = problem["msg"].replace("Value error, ", "")
    return f"{place or 'the whole'} is {short(problem['input'])}, but {reason[:1].lower()}{reason[1:]}"


def different_setting(chief: Mapping[str, Any], own: Mapping[str, Any], index: int, of: int = 0) -> Optional[str]:
    """Return the first setting that two processes do not share; None if they share all."""
    for name in {**chief, **own}:
        if chief.get(name) != own.get(name):
            return (
                f"{name} is {own.get(name)} for process {index} and {chief.get(name)} for process {of}; start all with"
                " the same config and flags"
            )
    return None
