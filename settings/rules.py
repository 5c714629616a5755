"""The rules between fields: data, length of training, phases of a run; and those of ``model_rules.py``."""

from __future__ import annotations

import math
from typing import Callable, Iterator, Optional, Tuple

from model.tasks import CLASSIFICATION, PRETRAINING, SENTENCE_EMBEDDING, SQUAD, TASKS
from settings import model_rules, rooms
from settings.data_sections import ClassificationData, Embedding
from settings.derived import packing_factor
from settings.metadata import manifest_count
from settings.problems import SettingError
from settings.published import PUBLISHED_SAMPLES
from settings.schema import TrainingConfig
from utilities.run_names import name_problem

Rule = Callable[[TrainingConfig, str], Iterator[SettingError]]  # yields the violations of a rule

SHORTEST_SEQUENCE, SHORTEST_TEXT = 5, 3  # tokens: [CLS] a [SEP] b [SEP], and [CLS] a [SEP]


def model_source(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    if config.bert_config is None and task == PRETRAINING:
        if config.pretrained_ckpt_path is None:
            hint = "add the section bert_config, or set pretrained_ckpt_path to weights, which decide it"
            yield SettingError(["bert_config"], "pre-training from random weights needs it", hint)
    elif config.bert_config is None and config.weights is None:
        fix = "set bert_model_name to a Hugging Face name or folder, or pretrained_ckpt_path to a checkpoint"
        yield SettingError(["bert_model_name"], "fine-tuning needs a model", fix)
    if config.bert_model_name is not None and task == PRETRAINING:
        fix = "remove bert_model_name; to start from weights give them as pretrained_ckpt_path"
        yield SettingError(["bert_model_name"], "pre-training takes its architecture from bert_config", fix)


def sequence_lengths(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    if config.max_seq_length < SHORTEST_SEQUENCE:
        fix = "set max_seq_length to 128"
        yield SettingError(["max_seq_length"], "[CLS], two texts and two [SEP] need at least 5 tokens", fix)
    longest_query = config.max_seq_length - 4  # without [CLS], two [SEP], and one token of the context
    if task == SQUAD and config.squad.max_query_length > longest_query:
        reason = "questions of that length leave no room for the context"
        fix = f"set squad.max_query_length to {max(1, longest_query // 2)}, or raise max_seq_length"
        yield SettingError(["squad.max_query_length", "max_seq_length"], reason, fix)
    if task == PRETRAINING and config.max_predictions_per_seq > config.max_seq_length:
        about = max(1, config.max_seq_length * 3 // 20)
        reason = "there are more masked positions than tokens"
        fix = f"set max_predictions_per_seq to about 15 % of max_seq_length, {about}"
        yield SettingError(["max_predictions_per_seq", "max_seq_length"], reason, fix)
    count, masked = config.packing.max_sequences_per_pack, config.packing.max_predictions_per_pack
    if count is None or task != PRETRAINING:
        return
    sequences, predictions = "packing.max_sequences_per_pack", "packing.max_predictions_per_pack"
    shortest = SHORTEST_SEQUENCE if config.use_next_sentence else SHORTEST_TEXT
    most = config.max_seq_length // shortest
    if count > most:
        reason = f"sequences have at least {shortest} tokens, with [CLS] and [SEP]"
        yield SettingError([sequences, "max_seq_length"], reason, f"set max_sequences_per_pack to at most {most}")
    elif masked is not None and not count <= masked <= config.max_seq_length:
        reason = "a pack has at least one masked token per sequence, and at most max_seq_length"
        fix = "leave max_predictions_per_pack unset, or set it to that of the data set's manifest"
        yield SettingError([predictions, sequences, "max_seq_length"], reason, fix)


def data_sizes(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    """Yield the sizes of the data set, as its manifest states them, that the config contradicts."""
    if task != PRETRAINING or config.packing.is_on:
        return
    for name in ("max_seq_length", "max_predictions_per_seq"):
        made, value = manifest_count(config.data_folder, "settings", name), getattr(config, name)
        if made is not None and made != value:
            fix = f"set {name} to {made}, or dataset_dir to a data set made with {value}"
            yield SettingError([name, "dataset_dir"], f"the data set was made with {made}", fix)


def data_and_length(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    trains = config.do_training
    other = "generated_dataset to true for random data" if trains else "validation_dir"
    has_other = config.generated_dataset if trains else config.validation_dir is not None
    if task == PRETRAINING and config.dataset_dir is None and not has_other:
        yield SettingError(["dataset_dir"], "pre-training needs data", f"set dataset_dir, or {other}")
    if trains and config.total_num_train_samples is None and config.num_epochs is None:
        lengths = ", ".join(map(str, PUBLISHED_SAMPLES))
        only = f", and only sequences of {lengths} have a published one" if task == PRETRAINING else ""
        fix = "set one of the two"
        yield SettingError(["total_num_train_samples", "num_epochs"], f"the length of training is not given{only}", fix)
    if task == PRETRAINING and trains and config.generated_dataset and config.total_num_train_samples is None:
        fix = "set total_num_train_samples instead of num_epochs"
        yield SettingError(["num_epochs", "generated_dataset"], "random data has no epochs", fix)
    samples = config.total_num_train_samples
    batch = math.ceil(config.samples_per_update * (packing_factor(config) or 1))
    if samples is not None and samples < batch:
        reason = f"too few for one weight update: a global batch has {batch} samples"
        fix = f"set total_num_train_samples to {batch} or more, or lower {config.global_batch.lowered}"
        yield SettingError(["total_num_train_samples"], reason, fix)


def phases(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    """Yield the phases that the task does not have, and settings that it needs."""
    if not (config.do_training or config.do_validation or config.do_test):
        yield SettingError(
            ["do_training", "do_validation", "do_test"], "there is nothing to do", "set one of them to true"
        )
    if config.do_test and not TASKS[task].has_test_set:
        yield SettingError(
            ["do_test"], f"{task} has no test set", "set do_test to false, or use run_seq_classification.py"
        )
    evaluation = config.evaluation
    if evaluation.every is None and (evaluation.patience is not None or evaluation.metric is not None):
        name = "patience" if evaluation.patience is not None else "metric"
        reason = "it has no effect without evaluation while training"
        fix = 'set evaluation.every to a number of weight updates or to "epoch"'
        yield SettingError([f"evaluation.{name}", "evaluation.every"], reason, fix)
    if evaluation.every is not None and not config.do_validation:
        yield SettingError(["evaluation.every", "do_validation"], "there is nothing to evaluate", "set do_validation")
    if config.validation_dir is not None and task != PRETRAINING:
        yield SettingError(
            ["validation_dir"], f"{task} reads its validation set from dataset_dir", "remove validation_dir"
        )
    if not config.do_training and config.weights is None:
        reason = "without training the weights must come from a checkpoint"
        fix = "set pretrained_ckpt_path or bert_model_name"
        yield SettingError(["pretrained_ckpt_path", "bert_model_name"], reason, fix)
    if config.continue_pretrained and config.pretrained_ckpt_path is None:
        fix = "set pretrained_ckpt_path to the program's N.ckpt"
        yield SettingError(["continue_pretrained", "pretrained_ckpt_path"], "there is no checkpoint to continue", fix)
    elif config.continue_pretrained and not config.do_training:
        fix = "set do_training, or remove continue_pretrained"
        yield SettingError(["continue_pretrained", "do_training"], "nothing is trained", fix)
    elif config.continue_pretrained and config.optimizer_opts.name == "Muon":
        reason = "the checkpoint has the moments of LAMB or AdamW, and Muon has others"
        fix = "set optimizer_opts.name to the checkpoint's, or remove continue_pretrained"
        yield SettingError(["continue_pretrained", "optimizer_opts.name"], reason, fix)
    if config.new_length and not config.resume:
        yield SettingError(["new_length", "resume"], "there is no run whose length it changes", "set resume, too")
    if config.word_vectors and task != PRETRAINING:
        yield SettingError(["word_vectors"], f"{task} starts from trained weights", "remove word_vectors")
    if config.glue_task is not None and task != CLASSIFICATION:
        yield SettingError(
            ["glue_task"], f"{task} has no GLUE task", "remove glue_task, or use run_seq_classification.py"
        )


def user_data(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    section, data = config.user_files(task)
    if config.classification_data is not None and task != CLASSIFICATION:
        fix = "remove classification_data, or use run_seq_classification.py"
        yield SettingError(["classification_data.train_file"], f"{task} has no such data", fix)
        return
    if data is None:
        if task == CLASSIFICATION and config.glue_task is None and not config.generated_dataset:
            fields = [f"{section}.train_file", "glue_task"]
            fix = "set train_file to a table (CSV, TSV or JSON Lines), or glue_task to a benchmark's, such as sst2"
            yield SettingError(fields, "there is nothing to classify", fix)
        return
    trains = config.do_training and not config.generated_dataset
    validates = config.do_validation and not config.generated_dataset
    if task == CLASSIFICATION and config.glue_task is not None:
        fix = "give --glue-task none, or remove classification_data"
        yield SettingError(["glue_task", f"{section}.train_file"], "a run has one task", fix)
    elif data.train_file is None and (trains or (validates and data.validation_file is None)):
        yield SettingError([f"{section}.train_file"], "there is nothing to train on", "set train_file")
    elif validates and data.validation_file is None and not data.validation_fraction:
        fields = [f"{section}.validation_file", f"{section}.validation_fraction", "do_validation"]
        yield SettingError(fields, "there is nothing to score", "set one of the first two, or do_validation to false")
    if isinstance(data, ClassificationData):
        if config.do_test and data.test_file is None:
            yield SettingError([f"{section}.test_file", "do_test"], "there is nothing to predict", "set test_file")
        yield from _user_classes(data, section)
    elif task == SENTENCE_EMBEDDING:
        pairs = config.global_batch.micro_batch_size * (config.packing.max_sequences_per_pack or 1)
        yield from _texts_to_embed(config.embedding, config.max_seq_length, pairs if config.do_training else None)


def _user_classes(data: ClassificationData, section: str) -> Iterator[SettingError]:
    if data.label_separator is not None and data.regression:
        fields = [f"{section}.label_separator", f"{section}.regression"]
        yield SettingError(fields, "a number has no labels", "remove one of them")
    changed = ["class_weights"] * (data.class_weights != "equal") + ["label_smoothing"] * bool(data.label_smoothing)
    if changed and (data.regression or data.label_separator is not None):
        fields = [f"{section}.{changed[0]}", f"{section}.{'regression' if data.regression else 'label_separator'}"]
        yield SettingError(fields, "this is about samples of one class each", "remove one of them")
    if isinstance(data.label, list):
        columns = [f"{section}.label", f"{section}.{'regression' if data.regression else 'classes'}"]
        if data.regression:
            yield SettingError(columns, "a number has one column", "remove one of them")
        elif sorted(data.classes or data.label) != sorted(data.label):
            yield SettingError(columns, "each column is a label", "remove classes, or name these columns")
    if data.classes is not None and data.regression:
        yield SettingError(
            [f"{section}.classes", f"{section}.regression"], "a number has no classes", "remove one of them"
        )
    elif data.classes is not None and len(set(data.classes)) < max(2, len(data.classes)):
        fix = "name each class once, or set label to the column of the classes"
        fields = [f"{section}.classes", f"{section}.label"]
        yield SettingError(fields, "a classifier needs two classes or more, all different", fix)


def _texts_to_embed(data: Embedding, length: int, pairs: Optional[int]) -> Iterator[SettingError]:
    """Yield the problems of sentence embeddings, trained with a number of pairs in a micro batch (None: not)."""
    count = len(data.text)
    shortest = SHORTEST_TEXT * count
    if length < shortest:
        reason = f"the {count} texts of a sample share a row, and each has at least {SHORTEST_TEXT} tokens"
        yield SettingError(["max_seq_length", "embedding.text"], reason, f"set max_seq_length to {shortest} or more")
    if data.label is not None:
        if count > 2:
            fix = "remove label, or the third column"
            yield SettingError(["embedding.label", "embedding.text"], "only pairs have a similarity", fix)
    elif count == 2 and pairs == 1:
        reason = "the wrong answers are those of the other pairs of the micro batch, and there is no other"
        fix = "set micro_batch_size to 32, say, or name a third column in embedding.text or the label"
        yield SettingError(["global_batch.micro_batch_size", "embedding.label"], reason, fix)


def run_name(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    problem = name_problem(config.name or "")
    if problem is not None:
        yield SettingError(["name"], *problem)


RULES: Tuple[Rule, ...] = (
    model_source,
    *model_rules.RULES,
    *rooms.RULES,
    sequence_lengths,
    data_sizes,
    data_and_length,
    phases,
    user_data,
    run_name,
)
