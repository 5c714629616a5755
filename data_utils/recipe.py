"""What the folder of a data set is made from: ``recipe.json``.

A command continues in a folder that was begun with the same input and settings. A folder that contains something else
is refused, unless it may be replaced.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from crc32c import crc32c

from data_utils.records.index import index_path
from data_utils.records.manifest import MANIFEST_NAME, WORK_FOLDER
from data_utils.records.writer import TEMPORARY_FILES
from data_utils.tokenizer_files import SETTINGS_NAME
from utilities.errors import UserError
from utilities.files import read_json_object, write_atomically

RECIPE_NAME = "recipe.json"
RECIPE_VERSION = 4  # must be raised whenever the same input and settings would give other bytes
END_BYTES, BLOCK_BYTES = 4096, 1 << 20
MAX_DIFFERENCES_SHOWN = 3


class Products(NamedTuple):
    """The files that a command makes in a folder."""

    last: str  # is written after the others
    pattern: str  # of the files that have most of the content
    others: Tuple[str, ...]

    @property
    def patterns(self) -> Tuple[str, ...]:
        return (self.last, self.pattern, *self.others)


DATA_SET = Products(MANIFEST_NAME, "*.tfrecord", (SETTINGS_NAME,))


def check_folder(folder: Path, recipe: Mapping[str, Any], overwrite: bool, products: Products = DATA_SET) -> None:
    """Check that a folder may be used for a recipe, of which parts that are not known yet may be left out."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output {folder}: a file, not a folder")
    if overwrite:
        return
    there = [pattern for pattern in products.patterns if any(folder.glob(pattern))]
    old = _read_recipe(folder)
    if old is None and there:  # made in another way, such as the folder of a model
        raise UserError(f"--output {folder}: contains {there[0]} already; choose another folder or --overwrite")
    is_begun = {products.last, products.pattern} & {*there} or any((folder / WORK_FOLDER).rglob("*.json"))
    if old is None or not is_begun:
        return
    changes = _differences({name: old[name] for name in ("version", *recipe) if name in old}, recipe)
    if changes:
        more = f" and {len(changes) - MAX_DIFFERENCES_SHOWN} more" if len(changes) > MAX_DIFFERENCES_SHOWN else ""
        raise UserError(
            f"--output {folder}: is made with other settings ({'; '.join(changes[:MAX_DIFFERENCES_SHOWN])}{more});"
            " run it with those, choose another folder, or replace it with --overwrite"
        )


def prepare_folder(
    folder: Path,
    recipe: Mapping[str, Any],
    overwrite: bool,
    products: Products = DATA_SET,
    keep_complete: bool = False,
) -> bool:
    """Make a folder ready for a recipe, delete what another one left, and return whether it is already complete.

    Args:
        keep_complete: Whether ``overwrite`` keeps what is complete and of the same recipe.
    """
    check_folder(folder, recipe, overwrite, products)
    is_this = not _differences(_read_recipe(folder) or {}, recipe)
    is_complete = is_this and (folder / products.last).exists()
    if is_complete and (keep_complete or not overwrite):
        clear_work(folder)  # left by a run that was killed at the very end
        return True
    if is_complete or not is_this:
        folder.mkdir(parents=True, exist_ok=True)
        for path in (path for pattern in products.patterns for path in [*folder.glob(pattern)]):
            index_path(path).unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        clear_work(folder)
        text = json.dumps({"version": RECIPE_VERSION, **recipe}, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
        write_atomically(folder / RECIPE_NAME, text)
    return False


def clear_work(folder: Path) -> None:
    """Delete the results and intermediate files of a folder that is complete or will be made again."""
    shutil.rmtree(folder / WORK_FOLDER, ignore_errors=True)
    for unfinished in folder.glob(TEMPORARY_FILES):  # left by a killed run
        unfinished.unlink(missing_ok=True)


def identify_files(files: Sequence[Path], ends_only: bool = False) -> Dict[str, Any]:
    """Identify files by number, size and a checksum of their names and content; a folder may be moved between two runs.

    Of records, which are large and are not edited, only each file's beginning and end are read.
    """
    checksum = total = 0
    for path in files:
        size = path.stat().st_size
        total += size
        checksum = crc32c(os.fsencode(path.name) + f" {size} ".encode(), checksum)
        with open(path, "rb") as stream:
            if ends_only:
                checksum = crc32c(stream.read(END_BYTES), checksum)
                stream.seek(max(0, size - END_BYTES))
            while block := stream.read(BLOCK_BYTES):
                checksum = crc32c(block, checksum)
    return {"files": len(files), "bytes": total, "checksum": f"{checksum:08x}"}


def _read_recipe(folder: Path) -> Optional[Dict[str, Any]]:
    try:
        return read_json_object(folder / RECIPE_NAME)
    except UserError:
        return None


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> List[str]:
    theirs, ours = _flat(old), _flat({"version": RECIPE_VERSION, **new})
    return [
        f"{key} {_short(theirs.get(key))} there, {_short(ours.get(key))} now"
        for key in {**ours, **theirs}
        if theirs.get(key) != ours.get(key)
    ]


def _flat(value: Any, prefix: str = "") -> Dict[str, Any]:
    if not isinstance(value, Mapping):
        return {prefix.rstrip("."): value}
    return {key: item for name, part in value.items() for key, item in _flat(part, f"{prefix}{name}.").items()}


def _short(value: Any) -> str:
    text = "unset" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:39] + "…"
