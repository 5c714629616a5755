"""Checks the paths of a run, and reads the samples of a fine-tuning that is planned, before TensorFlow is loaded.

A wrong path is refused at once, and ``--plan`` refuses the files that the run would refuse.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import List, NamedTuple, Optional, Sequence

from checkpoints.pretrained.naming import check_exists
from data_utils.classification.benchmarks import TASKS as BENCHMARK_TASKS
from data_utils.classification.reading import check_user_file, find_folder, read_split
from data_utils.classification.tasks import USER, BenchmarkTask
from data_utils.classification.user_task import user_task
from data_utils.records.files import list_record_files
from data_utils.squad.examples import read_squad
from data_utils.tagged_sentences import TEST, TRAIN, VALIDATION, read_sentences, sentences_file
from data_utils.tokenizer import vocabulary_file
from model.tasks import CLASSIFICATION, PRETRAINING, SENTENCE_EMBEDDING, SQUAD, TOKEN_CLASSIFICATION
from settings.architecture import check_known_sizes
from settings.data_sections import Embedding, Squad, UserFiles
from settings.loading import LoadedConfig
from settings.metadata import is_begun
from settings.schema import TrainingConfig
from teacher.identity import check_teacher_exists, unlabelled_texts  # room: teacher


def check_paths(config: TrainingConfig, task: str) -> None:
    """Refuse paths where there is nothing, and weights of other sizes, with the line that their reader would give."""
    if config.weights is not None and not is_begun(config.output_dir, config.name):
        check_exists(config.weights, config.weights_key)
        check_known_sizes(config, task)
    check_teacher_exists(config.distillation.teacher)  # room: teacher
    if config.generated_dataset:
        return
    if config.vocab_file and task != PRETRAINING:
        vocabulary_file(Path(config.vocab_file))
    folder, used = config.data_folder, config.splits
    section, data = config.user_files(task)
    if task == TOKEN_CLASSIFICATION:
        for name in used:
            sentences_file(config.dataset_dir, name)
    elif task == SQUAD and folder is not None:
        for path in _squad_files(config.squad, folder, used):
            if not path.exists():
                read_squad(path)
    elif task == PRETRAINING and folder is not None and not folder.is_dir():
        list_record_files(folder)
    elif task == CLASSIFICATION and config.glue_task is not None:
        if folder is not None:
            find_folder(folder, BENCHMARK_TASKS[config.glue_task])
    elif task not in (PRETRAINING, SQUAD) and data is not None:
        for name in used:
            file = getattr(data, f"{name}_file", None)
            if file is not None:
                check_user_file((folder or Path()) / file, section)


class Samples(NamedTuple):
    """The texts of the samples that a run trains on, and of all others; of tagged sentences, their words."""

    trained: List[Sequence[str]]
    others: List[Sequence[str]]


def read_samples(config: TrainingConfig, task: str, fetch: bool) -> Optional[Samples]:
    """Return the samples that the run reads; None if they must be fetched first.

    Args:
        task: classification, words or embeddings.
        fetch: whether the ``datasets`` library may download a benchmark.
    """
    if task == TOKEN_CLASSIFICATION:
        columns = config.token_data
        words = {
            name: read_sentences(config.dataset_dir, name, columns.word_column, columns.tag_column).words
            for name in config.splits
        }
        return Samples([*words.get(TRAIN, [])], [*words.get(VALIDATION, []), *words.get(TEST, [])])
    folder, data = config.data_folder, config.classification_data
    if task == SENTENCE_EMBEDDING:
        described = described_files(config.embedding)
    elif config.glue_task is not None:
        described = BENCHMARK_TASKS[config.glue_task]
    elif data is not None and (data.classes is not None or data.regression):
        described = user_task(**data.without_loss())
    else:
        return None
    if folder is None and described.benchmark != USER and not fetch:
        return None
    samples = Samples([], [])
    has_labels = task != SENTENCE_EMBEDDING or config.embedding.label is not None
    parts = (
        (samples.trained, (described.train,), config.do_training),
        (samples.others, described.validation, config.do_validation),
        (samples.others, described.test, config.do_test),
    )
    for texts, splits, is_used in parts:
        for split in splits if is_used else ():
            examples = read_split(described, split, folder, has_labels and split not in described.test)
            texts += examples.texts if examples is not None else []
    unlabelled = unlabelled_texts(config.distillation, described) if config.do_training else []  # room: teacher
    samples.trained.extend(unlabelled)  # room: teacher
    return samples


def described_files(section: Embedding) -> BenchmarkTask:
    """Return the description of the files of a config's section ``embedding``."""
    files = section.model_dump(include={*UserFiles.model_fields, "text"})
    described = user_task(**files, label=section.label or "", test_file=None, classes=None, regression=True)
    return dataclasses.replace(described, section="embedding", score_range=(-1.0, 1.0))


def counted(loaded: LoadedConfig) -> LoadedConfig:
    """Return a planned fine-tuning whose data set, if it is on this machine, was read and its samples counted."""
    config, task = loaded.config, loaded.task
    folder = Path(config.dataset_dir or "")
    if config.vocab_file and not config.generated_dataset:
        vocabulary_file(Path(config.vocab_file))
    if config.generated_dataset or loaded.found is not None or not folder.is_dir():
        return loaded
    if task == SQUAD:
        for path in _squad_files(config.squad, folder, config.splits) if config.dataset_dir else ():
            if path.is_file():
                read_squad(path)
        return loaded
    samples = read_samples(config, task, fetch=False)
    if samples is None or not samples.trained or config.packing.is_on:
        return loaded
    return dataclasses.replace(loaded, found=(len(samples.trained), 1.0))


def _squad_files(squad: Squad, folder: Path, used: List[str]) -> List[Path]:
    files = {TRAIN: squad.train_file, VALIDATION: squad.dev_file}
    return [folder / file for name, file in files.items() if name in used]
