"""Which teacher and texts without labels a config names or a run was begun with. Imports no TensorFlow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from checkpoints.pretrained.naming import check_exists
from data_utils.classification.reading import read_unlabelled
from data_utils.classification.tasks import BenchmarkTask
from teacher.section import Distillation
from utilities.errors import UserError

KEY = "distillation.teacher"
TAUGHT_BY = "+"  # between the identities of the data and of their teacher


def check_teacher_exists(teacher: Optional[str]) -> None:
    if teacher is not None:
        check_exists(teacher, KEY)


def unlabelled_texts(section: Distillation, benchmark: BenchmarkTask) -> List[Tuple[str, ...]]:
    """Return the texts that only the teacher labels."""
    return [] if section.unlabelled is None else read_unlabelled(benchmark, Path(section.unlabelled)).texts


def teacher_suffix(description: Mapping[str, Any]) -> str:
    """Return what a teacher adds to the identity of the data of a description."""
    identity = description.get("teacher", {}).get("sha256")
    return f"{TAUGHT_BY}{identity}" if identity else ""


def check_same_teacher(begun: str, identity: str) -> None:
    """Refuse to resume with another teacher on the same data; both are identities of data."""
    if begun.split(TAUGHT_BY)[0] == identity.split(TAUGHT_BY)[0] and begun != identity:
        raise UserError(
            f"{KEY}: is not the teacher that the run was begun with, or was changed since; name that one,"
            " or begin a new run under another --name"
        )


def card_rows(config: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the rows of a model's card; ``config`` is that of its run, by dotted names."""
    teacher = config.get(KEY)
    if not isinstance(teacher, str):
        return {}
    return {
        "distilled from": Path(teacher).name if os.path.isabs(teacher) else teacher,
        "teacher's share of the loss": config.get("distillation.weight"),
        "temperature": config.get("distillation.temperature"),
    }
