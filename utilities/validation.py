"""Describes in one line why pydantic refused the content of a file."""

from __future__ import annotations

from pydantic import ValidationError

from utilities.tables import short


def first_problem(error: ValidationError) -> str:
    """Return the first problem, with the place of the value in the file and the value itself.

    Example:
        >>> from pydantic import BaseModel
        >>> class File(BaseModel):
        ...     records: int
        >>> class Files(BaseModel):
        ...     files: list[File]
        >>> try:
        ...     Files.model_validate({"files": [{"records": "many"}]})
        ... except ValidationError as error:
        ...     print(first_problem(error))
        files[0].records is 'many', but input should be a valid integer, unable to parse string as an integer
    """
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        return f"is not valid JSON ({problem['ctx']['error']})"
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")
    if problem["type"] == "missing":
        return f"{place} is missing"
    reason = problem["msg"].replace("Value error, ", "")
    return f"{place or 'the whole'} is {short(problem['input'])}, but {reason[:1].lower()}{reason[1:]}"
