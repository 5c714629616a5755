"""What an output folder is being made from and with: decides whether a run goes on, is done already, or is refused.

``recipe.json`` is written when work begins and stays beside the result.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crc32c import crc32c

from data_utils.records.writer import write_atomically
from data_utils.text.ledger import WORK_FOLDER
from utilities.errors import UserError

RECIPE_NAME = "recipe.json"
RECIPE_VERSION = 1  # raise it whenever the same input and settings come to give other bytes
END_BYTES = 4096
DIFFERENCES_SHOWN = 3


def read_recipe(folder: Path) -> dict[str, Any] | None:
    """The recipe of a folder, None where it has none that can be read."""
    try:
        recipe = json.loads((folder / RECIPE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return recipe if isinstance(recipe, dict) else None


def write_recipe(folder: Path, recipe: Mapping[str, Any]) -> None:
    """Writes ``recipe.json``; the same recipe gives the same bytes."""
    text = json.dumps({"version": RECIPE_VERSION, **recipe}, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    write_atomically(folder / RECIPE_NAME, text.encode())


class Standing(enum.Enum):
    """What a folder holds, beside a recipe."""

    EMPTY = "nothing"
    BEGUN = "a part"
    COMPLETE = "all"
    OTHER = "something else"


def standing(folder: Path, recipe: Mapping[str, Any], mark: str, products: str, only: Iterable[str] = ()) -> Standing:
    """How far a folder is with a recipe.

    Args:
        folder: of the output; may be absent.
        recipe: of the run.
        mark: the file that is written last.
        products: pattern of the files that are written before.
        only: parts of the recipe to compare, where the others are not known yet.

    Raises:
        UserError: it is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output {folder}: a file, not a folder")
    is_complete = (folder / mark).exists()
    has_work = is_complete or any(folder.glob(products)) or any((folder / WORK_FOLDER).rglob("*.json"))
    if not has_work:
        return Standing.EMPTY
    old = read_recipe(folder)
    if old is None or differences(_part(old, only), _part(recipe, only)):
        return Standing.OTHER
    return Standing.COMPLETE if is_complete else Standing.BEGUN


def refuse(folder: Path, recipe: Mapping[str, Any], holds: str, only: Iterable[str] = ()) -> UserError:
    """The error for a folder that is in another standing than this recipe can go on from.

    Args:
        holds: what it is a folder of.
    """
    old = read_recipe(folder)
    if old is None:
        return UserError(f"--output {folder}: holds {holds} already; choose another folder or --overwrite")
    found = differences(_part(old, only), _part(recipe, only))
    more = f" and {len(found) - DIFFERENCES_SHOWN} more" if len(found) > DIFFERENCES_SHOWN else ""
    return UserError(
        f"--output {folder}: holds {holds} of other settings ({'; '.join(found[:DIFFERENCES_SHOWN])}{more});"
        " run it with those, choose another folder, or replace it with --overwrite"
    )


def is_recipe_of(folder: Path, recipe: Mapping[str, Any]) -> bool:
    """Whether the folder's recipe is this one."""
    return not differences(read_recipe(folder) or {}, recipe)


def _part(recipe: Mapping[str, Any], only: Iterable[str]) -> dict[str, Any]:
    names = ["version", *only] if only else list(recipe)
    return {name: recipe[name] for name in names if name in recipe}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What two recipes disagree on, one text a setting."""
    ours = _flat({"version": RECIPE_VERSION, **new})
    theirs = _flat(old)
    keys = [*ours, *(key for key in theirs if key not in ours)]
    return [
        f"{key} {_short(theirs.get(key))} there, {_short(ours.get(key))} now"
        for key in keys
        if theirs.get(key) != ours.get(key)
    ]


def identity_of(files: Sequence[Path]) -> dict[str, Any]:
    """What tells input files from others without reading them through: number, bytes, and a checksum.

    The checksum is over each file's name, size, begin and end, so a folder may be moved between two runs.
    """
    checksum = total = 0
    for path in files:
        size = path.stat().st_size
        total += size
        with open(path, "rb") as stream:
            parts = [f"{path.name} {size} ".encode(), stream.read(END_BYTES)]
            stream.seek(max(0, size - END_BYTES))
            parts.append(stream.read(END_BYTES))
        checksum = crc32c(b"".join(parts), checksum)
    return {"files": len(files), "bytes": total, "checksum": f"{checksum:08x}"}


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {prefix.rstrip("."): value}
    pairs: Iterable[dict[str, Any]] = (_flat(item, f"{prefix}{key}.") for key, item in value.items())
    return {key: item for pair in pairs for key, item in pair.items()}


def _short(value: Any) -> str:
    text = "unset" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:39] + "…"
