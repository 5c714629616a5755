"""What the JSON files that a config names say: a data set's ``manifest.json``, and the settings of saved weights.

A config is checked and planned with them. A file that is missing or damaged says nothing here; what reads the data set
or the checkpoint reports it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, Optional

from model.architecture import LAYER_OPTIONS
from utilities.errors import UserError
from utilities.files import read_json_object
from utilities.text_folder import MODEL  # room: from_text

# Files that state the sizes of weights: of this project's checkpoints and runs, of Hugging Face, of Google.
_SETTINGS_FILES = (
    "checkpoint.json", "step-*/checkpoint.json", "checkpoints/step-*/checkpoint.json", "config.json",
    "bert_config.json",
    f"{MODEL}/config.json",  # room: from_text
)  # fmt: skip


def manifest_count(folder: Optional[Path], section: str, key: str) -> Optional[int]:
    """Return a count in a data set's manifest, such as ``records`` in its section ``totals``; None if there is none."""
    values = _read(folder and folder / "manifest.json").get(section)
    count = values.get(key) if isinstance(values, dict) else None
    return count if type(count) is int and 0 <= count < 2**63 else None


def is_begun(output_dir: str, name: Optional[str]) -> bool:
    """Return whether a run has a folder; it is resumed then, and does not read the weights that its config names."""
    return os.path.exists(os.path.join(output_dir, str(name)))


def stated_in(path: Path) -> Dict[str, Any]:
    """Return the sizes and layer options of saved weights, as far as a file in their folder states them.

    Args:
        path: folder of a checkpoint, of a run or of a Hugging Face model, or a file of weights in such a folder.
    """
    is_weights = os.path.isfile(path) or os.path.isfile(f"{path}.index")
    folder = path.parent if is_weights else path
    try:
        values = _read(next((file for name in _SETTINGS_FILES for file in folder.glob(name)), None))
    except (OSError, ValueError):  # of a folder that cannot be read, or whose name cannot exist
        values = {}
    architecture = values.get("architecture")
    if isinstance(architecture, dict):
        return architecture
    section = values.get("bert_config")
    if isinstance(section, dict):  # the config of a run of the published program, whose weights show the options
        return section
    return {**values, **dict.fromkeys(LAYER_OPTIONS, True)} if values else {}


def _read(path: Optional[Path]) -> Dict[str, Any]:
    """Return the object in a JSON file; empty if there is none."""
    if path is None or not os.path.isfile(path):  # reading a pipe would never end
        return {}
    try:
        return read_json_object(path)
    except UserError:
        return {}
