"""Checks the paths of a run, and reads the files of a fine-tuning that is planned, before TensorFlow is loaded.

A wrong path is refused at once, and ``--plan`` refuses the files that the run would refuse.
"""

from __future__ import annotations

from pathlib import Path
from typing import List

from checkpoints.pretrained.naming import check_exists
from data_utils.classification.benchmarks import TASKS as BENCHMARK_TASKS
from data_utils.classification.reading import check_user_file, find_folder, read_split
from data_utils.classification.user_task import user_task
from data_utils.records.files import list_record_files
from data_utils.squad.examples import read_squad
from data_utils.tagged_sentences import TEST, TRAIN, VALIDATION, read_sentences, sentences_file
from data_utils.tokenizer import vocabulary_file
from model.tasks import CLASSIFICATION, PRETRAINING, SQUAD, TOKEN_CLASSIFICATION
from settings.data_sections import Squad
from settings.schema import TrainingConfig
from teacher.identity import check_teacher_exists  # room: teacher


def check_paths(config: TrainingConfig, task: str) -> None:
    """Refuse paths where there is nothing, with the same line as whoever opens them later."""
    run = Path(config.output_dir) / str(config.name)
    if config.weights is not None and not run.exists():  # a run that is resumed does not read them again
        check_exists(config.weights, config.weights_key)
    check_teacher_exists(config.distillation.teacher)  # room: teacher
    if config.generated_dataset:
        return
    if config.vocab_file and task != PRETRAINING:
        vocabulary_file(Path(config.vocab_file))
    folder, used = config.dataset_dir, config.splits
    section, data = config.user_files(task)
    if task == TOKEN_CLASSIFICATION:
        for name in used:
            sentences_file(folder, name)
    elif task == SQUAD and folder is not None:
        for path in _squad_files(config.squad, Path(folder), used):
            if not path.exists():
                read_squad(path)
    elif task == PRETRAINING and folder is not None and not Path(folder).is_dir():
        list_record_files(Path(folder))
    elif task == CLASSIFICATION and config.glue_task is not None:
        if folder is not None:
            find_folder(Path(folder), BENCHMARK_TASKS[config.glue_task])
    elif task not in (PRETRAINING, SQUAD) and data is not None:
        for name in used:
            file = getattr(data, f"{name}_file", None)
            if file is not None:
                check_user_file(Path(folder or "") / file, section)


def check_files(config: TrainingConfig, task: str) -> None:
    """Read the data set, which is there; for classification, the user's own files."""
    if config.generated_dataset:
        return
    folder, used, data = Path(config.dataset_dir or ""), config.splits, config.classification_data
    if task == TOKEN_CLASSIFICATION:
        for name in used:
            read_sentences(str(folder), name, config.token_data.word_column, config.token_data.tag_column)
    elif task == SQUAD:
        for path in _squad_files(config.squad, folder, used):
            if path.is_file():
                read_squad(path)
    elif task == CLASSIFICATION and data is not None and (data.classes is not None or data.regression):
        described = user_task(**data.without_loss())
        parts = {TRAIN: (described.train,), VALIDATION: described.validation, TEST: described.test}
        for split, has_labels in [(split, name != TEST) for name in used for split in parts[name]]:
            if (folder / split.files[0].name).is_file():
                read_split(described, split, folder, has_labels)


def _squad_files(squad: Squad, folder: Path, used: List[str]) -> List[Path]:
    files = {TRAIN: squad.train_file, VALIDATION: squad.dev_file}
    return [folder / file for name, file in files.items() if name in used]
