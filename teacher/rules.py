"""The rules of the section for distillation."""

from __future__ import annotations

from typing import Iterator

from model.tasks import CLASSIFICATION
from settings.problems import SettingError
from settings.schema import TrainingConfig
from teacher.section import Distillation


def distillation(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    own, unset = config.distillation, Distillation()
    teacher = "distillation.teacher"
    if own.teacher is None:
        changed = next((name for name, value in own if value != getattr(unset, name)), None)
        if changed is not None:
            fix = f"set {teacher} to a trained classifier, or remove {changed}"
            yield SettingError([f"distillation.{changed}", teacher], "there is no teacher", fix)
    elif task != CLASSIFICATION:
        fix = f"remove {teacher}, or use run_seq_classification.py"
        yield SettingError([teacher], f"{task} learns from no teacher, only classification does", fix)
    elif config.generated_dataset:
        yield SettingError([teacher, "generated_dataset"], "random data has no texts to teach", f"remove {teacher}")
    elif config.runs_on_ipus:
        fix = "train on a CPU or a GPU (execution.platform software)"
        yield SettingError([teacher, "execution.platform"], "the teacher answers on stock TensorFlow only", fix)
    elif config.number_of_labels == 1 and own.temperature != unset.temperature:
        fix = "remove it"
        yield SettingError(["distillation.temperature"], "a regression has no probabilities to soften", fix)
