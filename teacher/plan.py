"""What the config of a distillation names: the teacher, and texts without labels. Known without TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional, Tuple

from checkpoints.pretrained.naming import check_exists
from data_utils.classification.reading import read_unlabelled
from data_utils.classification.tasks import BenchmarkTask
from teacher.identity import KEY
from teacher.section import Distillation


def check_teacher_exists(teacher: Optional[str]) -> None:
    """Refuse a teacher's path where there is nothing."""
    if teacher is not None:
        check_exists(teacher, KEY)


def unlabelled_texts(section: Distillation, benchmark: BenchmarkTask) -> List[Tuple[str, ...]]:
    """Return the texts that only the teacher labels."""
    return [] if section.unlabelled is None else read_unlabelled(benchmark, Path(section.unlabelled)).texts
