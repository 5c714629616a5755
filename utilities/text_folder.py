"""The folder that ``run_from_text.py`` makes: a run for each length of rows, and the model that came out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List, Optional

from utilities.errors import UserError

PLAN, MODEL = "plan.json", "model"


def run_folders(folder: Path) -> Optional[List[Path]]:
    """Return the runs of the parts that were planned, in order, begun or not; None if it is another folder."""
    try:
        plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        return [folder / str(int(length)) for length in plan["recipe"]["lengths"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def model_folder(folder: Path, key: str) -> Path:
    """Return the Hugging Face folder in the folder of ``run_from_text.py``, or any other folder as it is.

    The folder may have been renamed. It is a ``UserError`` if the command has not ended yet.
    """
    runs = run_folders(folder)
    if runs is None:
        return folder
    if not (folder / MODEL).is_dir():
        raise UserError(
            f"{key}: {folder} is a folder of run_from_text.py that has no {MODEL}/ yet; repeat its command to the end"
        )
    return folder / MODEL
