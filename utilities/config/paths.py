"""Environment variables and the home folder in path fields."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List

from utilities.config.fields import Leaf, leaves, value_at
from utilities.config.problems import with_origin

_VARIABLE = re.compile(r"\$(?:\{([^}]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def expand_paths(values: Dict[str, Any], origins: Dict[str, str]) -> List[str]:
    """Expands ``$VAR``, ``${VAR}`` and ``~`` in every path field, in place.

    ``dataset_dir`` stays as it is where random data takes its place: such a run needs no data folder.

    Returns:
        problems, one line each.
    """
    problems: List[str] = []
    for leaf in leaves().values():
        if leaf.kind.name != "path":
            continue
        value = value_at(values, leaf.path)
        if not isinstance(value, str) or (leaf.name == "dataset_dir" and values.get("generated_dataset") is True):
            continue
        problem = _problem(leaf, value, origins)
        if problem:
            problems.append(problem)
        else:
            section = value_at(values, leaf.path[:-1])
            section[leaf.path[-1]] = expand(value)
    return problems


def expand(path: str) -> str:
    """``path`` with variables and ``~`` expanded; variables must be set."""
    filled = _VARIABLE.sub(lambda match: os.environ[match.group(1) or match.group(2)], path)
    return os.path.expanduser(filled)


def _problem(leaf: Leaf, value: str, origins: Dict[str, str]) -> str:
    place = with_origin(leaf.name, value, origins)
    if "\0" in value:
        return f"{place}: holds a NUL character; correct the path"
    for match in _VARIABLE.finditer(value):
        variable = match.group(1) or match.group(2)
        if not variable:
            return f"{place}: ${{}} names no variable; correct the path"
        if variable not in os.environ:
            return (
                f"{place}: the environment variable {variable} is not set; "
                f"run: export {variable}=/path, or give {leaf.flag} PATH"
            )
        if not os.environ[variable]:
            return f"{place}: the environment variable {variable} is empty; run: export {variable}=/path"
    if value.startswith("~") and os.path.expanduser(value) == value:
        return f"{place}: no home folder for {value.split('/')[0]}; write the path in full"
    return ""
