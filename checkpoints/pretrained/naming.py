"""What a name of a checkpoint tells before the checkpoint is opened, and before TensorFlow is loaded."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Optional

from checkpoints.folder import DESCRIPTION, step_folders
from utilities.errors import UserError
from utilities.files import read_json_object

REMOTE_KEY = "bert_model_name"  # the only key that may name a model of huggingface.co
_MODEL_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*")
_DATA_FILE = re.compile(r"\.(?:index|data-\d+-of-\d+)$")


def is_model_name(text: str) -> bool:
    """Return whether a text may be the name of a model of huggingface.co, such as ``someone/some-bert``."""
    return _MODEL_NAME.fullmatch(text) is not None


def weights_prefix(path: Path) -> Path:
    """Return the prefix of a TensorFlow checkpoint that one of its files, or the prefix itself, names."""
    return Path(_DATA_FILE.sub("", str(path)))


def check_exists(name_or_path: str, key: str) -> None:
    """Refuse the path of a checkpoint, named by a config key or flag, where there is nothing."""
    path, may_be_remote = Path(name_or_path), key == REMOTE_KEY and is_model_name(name_or_path)
    is_here = os.path.exists(path) or os.path.isfile(f"{weights_prefix(path)}.index")  # no error for a name too long
    if not str(name_or_path):  # as of a shell's variable that is not set; it would be the current folder
        raise UserError(f"{key}: the path is empty; name a folder or file")
    if not (is_here or may_be_remote):
        raise UserError(f"{key}: there is no folder or file {path}; correct the path")


def stated_task(path: Path) -> Optional[str]:
    """Return the task that one of this project's runs or checkpoints was trained for; None if no file says it."""
    folders = [path, *step_folders(path), *step_folders(path / "checkpoints")]
    description = next((file for file in (folder / DESCRIPTION for folder in folders) if file.is_file()), None)
    task = None
    with contextlib.suppress(UserError):  # whoever opens the checkpoint reports it
        task = None if description is None else read_json_object(description).get("task")
    return task if isinstance(task, str) else None
