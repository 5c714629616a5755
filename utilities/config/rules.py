"""Rules that relate fields to one another: data, length of training, what a run does; also those of model_rules.py."""

from __future__ import annotations

import math
from typing import Callable, List, Tuple

from model.architecture import CLASSIFICATION, PRETRAINING, SQUAD, TASKS
from utilities.config import model_rules
from utilities.config.figures import PUBLISHED_SAMPLES, packing_factor, starts_from_checkpoint
from utilities.config.problems import FieldError
from utilities.config.schema import TrainingConfig

Rule = Callable[[TrainingConfig, str], None]  # raises FieldError for a config that breaks it

SHORTEST_SEQUENCE = 5  # tokens: [CLS] a [SEP] b [SEP]


def model_is_named(config: TrainingConfig, task: str) -> None:
    """A model needs an architecture."""
    if config.bert_config is None and task == PRETRAINING:
        raise FieldError(["bert_config"], "pre-training needs it", "add the section bert_config")
    if config.bert_config is None and config.bert_model_name is None:
        raise FieldError(
            ["bert_model_name"],
            "fine-tuning needs a model",
            "set bert_model_name to a Hugging Face name or folder, or bert_config with pretrained_ckpt_path",
        )


def model_name_is_for_fine_tuning(config: TrainingConfig, task: str) -> None:
    """Pre-training builds its model from bert_config."""
    if config.bert_model_name is not None and task == PRETRAINING:
        raise FieldError(
            ["bert_model_name"],
            "pre-training takes its architecture from bert_config",
            "remove bert_model_name; to start from weights give them as pretrained_ckpt_path",
        )


def sequence_holds_special_tokens(config: TrainingConfig, task: str) -> None:
    """[CLS] a [SEP] b [SEP] needs five tokens."""
    if config.max_seq_length < SHORTEST_SEQUENCE:
        raise FieldError(
            ["max_seq_length"],
            "[CLS], two texts and two [SEP] need at least 5 tokens",
            "set max_seq_length to 128",
        )


def question_leaves_room(config: TrainingConfig, task: str) -> None:
    """A window holds the question and some of the context."""
    room = config.max_seq_length - 4  # [CLS], two [SEP], and one token of the context
    if task == SQUAD and config.squad.max_query_length > room:
        raise FieldError(
            ["squad.max_query_length", "max_seq_length"],
            "questions of that length leave no room for the context",
            f"set squad.max_query_length to {max(1, room // 2)}, or raise max_seq_length",
        )


def predictions_fit_sequence(config: TrainingConfig, task: str) -> None:
    """There are no more masked tokens than tokens."""
    about = max(1, config.max_seq_length * 3 // 20)
    if task == PRETRAINING and config.max_predictions_per_seq > config.max_seq_length:
        raise FieldError(
            ["max_predictions_per_seq", "max_seq_length"],
            "there are more masked positions than tokens",
            f"set max_predictions_per_seq to about 15 % of max_seq_length, {about}",
        )


def packs_hold_their_sequences(config: TrainingConfig, task: str) -> None:
    """Each sequence of a pack has special tokens and at least one masked one."""
    places, room = config.packing.max_sequences_per_pack, config.packing.max_predictions_per_pack
    if places is None or task != PRETRAINING:
        return
    sequences, predictions = "packing.max_sequences_per_pack", "packing.max_predictions_per_pack"
    most = config.max_seq_length // SHORTEST_SEQUENCE
    if places > most:
        raise FieldError(
            [sequences, "max_seq_length"],
            f"sequences have at least {SHORTEST_SEQUENCE} tokens: [CLS], two texts and two [SEP]",
            f"set max_sequences_per_pack to at most {most}",
        )
    if room is not None and not places <= room <= config.max_seq_length:
        raise FieldError(
            [predictions, sequences, "max_seq_length"],
            "a pack has at least one masked token for each sequence, and no more than tokens",
            "leave max_predictions_per_pack unset, or set it to that of the data set's manifest",
        )


def data_is_named(config: TrainingConfig, task: str) -> None:
    """Pre-training reads a folder or uses random data."""
    if task == PRETRAINING and config.dataset_dir is None and not config.generated_dataset:
        raise FieldError(
            ["dataset_dir"],
            "pre-training needs data",
            "set dataset_dir (or --dataset-dir PATH), or generated_dataset to true for random data",
        )


def training_has_a_length(config: TrainingConfig, task: str) -> None:
    """A run that trains has a length."""
    trains = task == PRETRAINING or config.do_training
    if trains and config.total_num_train_samples is None and config.num_epochs is None:
        lengths = ", ".join(map(str, PUBLISHED_SAMPLES))
        only = f", and only sequences of {lengths} have a published one" if task == PRETRAINING else ""
        raise FieldError(
            ["total_num_train_samples", "num_epochs"],
            f"the length of training is not given{only}",
            "set one of the two",
        )


def random_data_has_a_length(config: TrainingConfig, task: str) -> None:
    """Random data has no end, and so no epochs."""
    if task == PRETRAINING and config.generated_dataset and config.total_num_train_samples is None:
        raise FieldError(
            ["num_epochs", "generated_dataset"],
            "random data has no epochs",
            "set total_num_train_samples in place of num_epochs",
        )


def training_has_a_step(config: TrainingConfig, task: str) -> None:
    """Training has at least one global batch."""
    samples = config.total_num_train_samples
    batch = math.ceil(config.samples_per_update * (packing_factor(config) or 1))
    if samples is not None and samples < batch:
        raise FieldError(
            ["total_num_train_samples"],
            f"not one weight update: a global batch has {batch} samples",
            f"set total_num_train_samples to {batch} or more, or lower global_batch.grad_acc_steps_per_replica",
        )


def something_is_done(config: TrainingConfig, task: str) -> None:
    """Fine-tuning trains, validates or tests."""
    if task != PRETRAINING and not (config.do_training or config.do_validation or config.do_test):
        raise FieldError(
            ["do_training", "do_validation", "do_test"], "there is nothing to do", "set one of them to true"
        )


def pretraining_trains(config: TrainingConfig, task: str) -> None:
    """Pre-training has no other phase than training."""
    if task == PRETRAINING and not config.do_training:
        raise FieldError(["do_training"], "pre-training only trains", "set do_training to true")


def test_is_for_classification(config: TrainingConfig, task: str) -> None:
    """SQuAD and pre-training have no public test set."""
    if config.do_test and not TASKS[task].has_test_set:
        raise FieldError(
            ["do_test"], f"{task} has no test set", "set do_test to false, or use run_seq_classification.py"
        )


def evaluation_has_data(config: TrainingConfig, task: str) -> None:
    """Evaluation while training needs a validation set, and says when it takes place."""
    evaluation = config.evaluation
    if evaluation.every is None and (evaluation.patience is not None or evaluation.metric is not None):
        name = "patience" if evaluation.patience is not None else "metric"
        raise FieldError(
            [f"evaluation.{name}", "evaluation.every"],
            "it has no effect without evaluation while training",
            'set evaluation.every to a number of weight updates or to "epoch"',
        )
    if evaluation.every is not None and not config.do_validation:
        raise FieldError(["evaluation.every", "do_validation"], "there is nothing to evaluate", "set do_validation")
    if config.validation_dir is not None and task != PRETRAINING:
        raise FieldError(
            ["validation_dir"], f"{task} reads its validation set from dataset_dir", "remove validation_dir"
        )


def evaluation_has_weights(config: TrainingConfig, task: str) -> None:
    """Without training, weights must come from somewhere."""
    if task != PRETRAINING and not config.do_training and not starts_from_checkpoint(config):
        raise FieldError(
            ["pretrained_ckpt_path", "bert_model_name"],
            "without training the weights must come from a checkpoint",
            "set pretrained_ckpt_path or bert_model_name",
        )


def glue_task_fits(config: TrainingConfig, task: str) -> None:
    """Only classification has a benchmark task."""
    if config.glue_task is not None and task != CLASSIFICATION:
        raise FieldError(
            ["glue_task"], f"{task} has no GLUE task", "remove glue_task, or use run_seq_classification.py"
        )


def seeds_are_for_classification(config: TrainingConfig, task: str) -> None:
    """Only classification, whose scores vary with the seed, trains once for each of several seeds."""
    if config.seeds is None:
        return
    if task != CLASSIFICATION:
        raise FieldError(["seeds"], f"{task} trains with one seed", "set seed in place of seeds")
    if not config.do_training:
        raise FieldError(["seeds", "do_training"], "without training there is nothing to vary", "remove seeds")
    twice = next((seed for seed in config.seeds if config.seeds.count(seed) > 1), None)
    if twice is not None:
        raise FieldError(["seeds"], f"{twice} stands there twice", "name each seed once")


def name_is_a_folder_name(config: TrainingConfig, task: str) -> None:
    """The run's folder is output_dir/name."""
    name = config.name or ""
    if name in (".", "..") or any(c in "/\\:" or ord(c) < 32 for c in name):
        raise FieldError(["name"], "the run's folder has this name", r"use a name without / \ : and control characters")
    if len(name.encode("utf-8")) > 200:
        raise FieldError(["name"], "too long for a folder's name", "use a name of at most 200 bytes")


RULES: Tuple[Rule, ...] = (
    model_is_named,
    model_name_is_for_fine_tuning,
    *model_rules.RULES,
    sequence_holds_special_tokens,
    question_leaves_room,
    predictions_fit_sequence,
    packs_hold_their_sequences,
    data_is_named,
    training_has_a_length,
    random_data_has_a_length,
    training_has_a_step,
    something_is_done,
    pretraining_trains,
    test_is_for_classification,
    evaluation_has_data,
    evaluation_has_weights,
    glue_task_fits,
    seeds_are_for_classification,
    name_is_a_folder_name,
)


def broken_rules(config: TrainingConfig, task: str) -> List[FieldError]:
    """Return the error of every rule that ``config`` breaks, in the order of ``RULES``."""
    problems: List[FieldError] = []
    for rule in RULES:
        try:
            rule(config, task)
        except FieldError as problem:
            problems.append(problem)
    return problems
