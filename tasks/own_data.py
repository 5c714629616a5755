"""Completes the config of a classification with what the user's own files contain: the classes.

Plans and errors of a config appear before TensorFlow is loaded, so this module does not import it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Optional

from model.tasks import CLASSIFICATION
from settings.schema import TrainingConfig
from settings.sections import ClassificationData
from utilities.errors import UserError
from utilities.tables import check_columns, distinct_values


def read_classes(config: TrainingConfig, task: str) -> Dict[str, Any]:
    """Return the classes in the user's training file, if it exists and the config does not name them.

    Args:
        config: the config as files and flags give it.
        task: a name in ``model.tasks.TASKS``; only classification has data of the user's own.

    Returns:
        Values by dotted name, for :func:`settings.loading.resolve`.

    Raises:
        UserError: one of the user's files is not in the format of its suffix, or lacks a column.
    """
    own = config.classification_data
    if task != CLASSIFICATION or own is None:
        return {}
    for field, columns in _columns(config, own).items():
        path = _path(config, own, field)
        if path is not None:
            try:
                check_columns(path, columns)
            except UserError as error:
                flags = ", ".join(f"--classification-data.{key}" for key in (field.replace("_", "-"), "text", "label"))
                raise UserError(f"{error} ({flags})") from error
    path = _path(config, own, "train_file")
    if path is None or own.regression or own.classes is not None:
        return {}
    return {"classification_data.classes": distinct_values(path, own.label)}


def _columns(config: TrainingConfig, own: ClassificationData) -> Dict[str, List[str]]:
    """Return the columns that the run reads from each of the user's files."""
    scored = "train_file" if own.validation_file is None else "validation_file"
    read = {"train_file": config.do_training, scored: config.do_validation}
    columns = {field: [*own.text, own.label] for field, is_read in read.items() if is_read}
    return {**columns, "test_file": own.text} if config.do_test else columns


def _path(config: TrainingConfig, own: ClassificationData, field: str) -> Optional[Path]:
    """Return the path of one of the user's files; None if it does not exist, or random data is used."""
    path = os.path.join(config.dataset_dir or "", getattr(own, field) or "")
    return Path(path) if os.path.isfile(path) and not config.generated_dataset else None
