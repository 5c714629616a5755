"""Reads the files of a fine-tuning that is planned, so that ``--plan`` refuses what the run would refuse."""

from __future__ import annotations

from pathlib import Path

from data_utils.classification.own import own_task
from data_utils.classification.reading import read_split
from data_utils.squad.examples import read_squad
from data_utils.tagged_sentences import TEST, TRAIN, VALIDATION, read_sentences
from model.tasks import CLASSIFICATION, SQUAD, TOKEN_CLASSIFICATION
from settings.schema import TrainingConfig


def check_files(config: TrainingConfig, task: str) -> None:
    """Read the data set, which is there; for classification, the user's own files.

    Args:
        task: a name in ``model.tasks.TASKS``.

    Raises:
        UserError: a file cannot be used; the message names the file and the line.
    """
    if config.generated_dataset:
        return
    folder = Path(config.dataset_dir or "")
    flags = {TRAIN: config.do_training, VALIDATION: config.do_validation, TEST: config.do_test}
    used = [name for name, is_used in flags.items() if is_used]
    if task == TOKEN_CLASSIFICATION:
        for name in used:
            read_sentences(str(folder), name, config.token_data.word_column, config.token_data.tag_column)
    elif task == SQUAD:
        files = {TRAIN: config.squad.train_file, VALIDATION: config.squad.dev_file}
        for path in (folder / file for name, file in files.items() if name in used):
            if path.is_file():
                read_squad(path)
    elif task == CLASSIFICATION:
        _check_tables(config, folder, used)


def _check_tables(config: TrainingConfig, folder: Path, used: list[str]) -> None:
    own = config.classification_data
    if own is None or (own.classes is None and not own.regression):
        return
    task = own_task(**own.without_loss())
    parts = {TRAIN: (task.train,), VALIDATION: task.validation, TEST: task.test}
    splits = [(split, name != TEST) for name in used for split in parts[name]]
    for split, has_labels in splits:
        if (folder / split.files[0].name).is_file():
            read_split(task, split, folder, has_labels)
