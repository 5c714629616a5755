"""Checks the columns of the user's own files, and completes the config with what they contain: the classes.

Plans and errors of a config appear before TensorFlow is loaded, so this module does not import it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from model.tasks import CLASSIFICATION, SENTENCE_EMBEDDING
from settings.data_sections import USUAL_SEPARATOR, ClassificationData, Embedding, UserFiles
from settings.schema import TrainingConfig
from utilities.errors import UserError
from utilities.tables import check_columns, check_flags, distinct_values, has_lists


def read_classes(config: TrainingConfig, task: str) -> Dict[str, Any]:
    """Return the classes in the user's training file, by dotted name, if it exists and the config does not name them.

    Samples that have any number of labels, by several columns or by lists, get a ``label_separator`` for predictions.
    """
    section, data = config.user_files(task)
    if task not in (CLASSIFICATION, SENTENCE_EMBEDDING) or data is None:
        return {}
    folder = None if config.generated_dataset else config.dataset_dir or ""
    for field, columns in _columns(data, config.splits).items():
        path = _path(folder, getattr(data, field))
        if path is not None:
            try:
                check_columns(path, columns)
            except UserError as error:
                start = f"--{section.replace('_', '-')}"
                flags = ", ".join(f"{start}.{key}" for key in (field.replace("_", "-"), "text", "label"))
                raise UserError(f"{error} ({flags})") from error
    if not isinstance(data, ClassificationData) or data.regression:
        return {}
    path, separator, classes = _path(folder, data.train_file), data.label_separator, data.classes
    if isinstance(data.label, list):
        if path is not None:
            check_flags(path, data.label)
        separator, classes = separator or USUAL_SEPARATOR, classes or data.label
    elif path is not None:
        if separator is None and has_lists(path, data.label):
            separator = USUAL_SEPARATOR
        classes = classes or distinct_values(path, data.label, separator)
    found = {"label_separator": separator, "classes": classes}
    return {f"classification_data.{key}": value for key, value in found.items() if value != getattr(data, key)}


def _columns(data: UserFiles, splits: Sequence[str]) -> Dict[str, List[str]]:
    """Return the columns that the run reads from each of the user's files."""
    assert isinstance(data, (ClassificationData, Embedding))
    labels = [data.label] if isinstance(data.label, str) else data.label or []
    scored = "train_file" if data.validation_file is None else "validation_file"
    fields = {"train": "train_file", "validation": scored}
    columns = {field: [*data.text, *labels] for split, field in fields.items() if split in splits}
    return {**columns, "test_file": data.text} if "test" in splits else columns


def _path(folder: Optional[str], file: Optional[str]) -> Optional[Path]:
    """Return the path of one of the user's files; None if it does not exist, or there is no folder."""
    path = Path(folder or "", file or "")
    return path if folder is not None and os.path.isfile(path) else None
