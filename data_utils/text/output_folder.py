"""The folder of a data set that is to be made: refused, made ready, or complete already."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_utils.records.writer import MANIFEST_NAME, index_path
from data_utils.text.ledger import forget
from data_utils.text.recipe import Standing, is_recipe_of, refuse, standing, write_recipe

RECORDS = "*.tfrecord"


def look_at_output(folder: Path, recipe: Mapping[str, Any], overwrite: bool) -> Standing:
    """How far the folder is with a recipe; what the recipe does not say is not compared.

    Raises:
        UserError: it holds something else, and ``overwrite`` is false.
    """
    found = standing(folder, recipe, MANIFEST_NAME, RECORDS, only=tuple(recipe))
    if found is Standing.OTHER and not overwrite:
        raise refuse(folder, recipe, "a data set", only=tuple(recipe))
    return found


def take_up(folder: Path, recipe: Mapping[str, Any], overwrite: bool) -> bool:
    """Makes the folder ready for the recipe: what it holds of another one is removed.

    Returns:
        Whether all is there already.

    Raises:
        UserError: it holds something else, and ``overwrite`` is false.
    """
    found = look_at_output(folder, recipe, overwrite)
    if found is Standing.COMPLETE and not overwrite:
        forget(folder)  # what a run that was killed at the very end left
        return True
    if found is not Standing.BEGUN or not is_recipe_of(folder, recipe):
        folder.mkdir(parents=True, exist_ok=True)
        for path in [folder / MANIFEST_NAME, *folder.glob(RECORDS)]:
            index_path(path).unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        if not is_recipe_of(folder, recipe):
            forget(folder)
        write_recipe(folder, recipe)
    return False
