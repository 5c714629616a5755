"""What the config of a distillation names: the teacher, and texts without labels. Known without TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import List, Tuple

from checkpoints.pretrained.naming import check_exists
from data_utils.classification.reading import read_unlabelled
from data_utils.classification.tasks import BenchmarkTask
from settings.schema import TrainingConfig
from teacher.identity import KEY


def check_teacher_exists(config: TrainingConfig) -> None:
    """Refuse a teacher's path where there is nothing."""
    if config.distillation.teacher is not None:
        check_exists(config.distillation.teacher, KEY)


def unlabelled_texts(config: TrainingConfig, benchmark: BenchmarkTask) -> List[Tuple[str, ...]]:
    """Return the texts that only the teacher labels."""
    path = config.distillation.unlabelled
    return [] if path is None or not config.do_training else read_unlabelled(benchmark, Path(path)).texts
