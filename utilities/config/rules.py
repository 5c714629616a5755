"""Rules that tie fields to one another. Each is one function that raises for the config that breaks it."""

from __future__ import annotations

import math
from typing import Callable, List, Tuple

from model.architecture import CLASSIFICATION, PRETRAINING, SQUAD
from utilities.config import pipeline_rules, sparsity_rules
from utilities.config.figures import (
    LAYER_OPTIONS,
    PUBLISHED_SAMPLES,
    bert_sizes,
    packing_factor,
    runs_on_ipus,
    starts_from_checkpoint,
)
from utilities.config.problems import FieldError
from utilities.config.schema import TrainingConfig

Rule = Callable[[TrainingConfig, str], None]

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


def heads_divide_hidden_size(config: TrainingConfig, task: str) -> None:
    """Attention heads share the hidden size evenly."""
    sizes = config.bert_config
    if sizes is None or sizes.hidden_size % sizes.num_attention_heads == 0:
        return
    near = _nearest_divisor(sizes.hidden_size, sizes.num_attention_heads)
    raise FieldError(
        ["bert_config.num_attention_heads", "bert_config.hidden_size"],
        "the heads must divide hidden_size",
        f"set num_attention_heads to {near}, or hidden_size to a multiple of {sizes.num_attention_heads}",
    )


def vocabulary_divides(config: TrainingConfig, task: str) -> None:
    """The tied embedding is cut into equal slices."""
    sizes, factor = config.bert_config, config.embedding_serialization_factor
    if sizes is None or sizes.vocab_size % factor == 0:
        return
    padded = -(-sizes.vocab_size // factor) * factor
    raise FieldError(
        ["embedding_serialization_factor", "bert_config.vocab_size"],
        "the factor must divide vocab_size",
        f"set embedding_serialization_factor to {_nearest_divisor(sizes.vocab_size, factor)}, or "
        f"vocab_size to {padded}",
    )


def _nearest_divisor(number: int, wish: int) -> int:
    """The divisor of ``number`` nearest to ``wish``, or 1 if it is far away."""
    wish = min(wish, number)
    for distance in range(min(number, 100_000)):
        for candidate in (wish - distance, wish + distance):
            if 0 < candidate <= number and number % candidate == 0:
                return candidate
    return 1


def sequence_fits_positions(config: TrainingConfig, task: str) -> None:
    """The model has an embedding for each position."""
    sizes = bert_sizes(config)
    if sizes is None or config.max_seq_length <= sizes.max_position_embeddings:
        return
    limit = sizes.max_position_embeddings
    own = config.bert_config is not None
    raise FieldError(
        ["max_seq_length", "bert_config.max_position_embeddings" if own else "bert_model_name"],
        f"sequences are longer than the model's {limit} positions",
        f"set max_seq_length to at most {limit}" + (", or raise max_position_embeddings" if own else ""),
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
    """No more masked tokens than tokens."""
    about = max(1, config.max_seq_length * 3 // 20)
    if task == PRETRAINING and config.max_predictions_per_seq > config.max_seq_length:
        raise FieldError(
            ["max_predictions_per_seq", "max_seq_length"],
            "there are more masked positions than tokens",
            f"set max_predictions_per_seq to about 15 % of max_seq_length, {about}",
        )


def qkv_bias_needs_split(config: TrainingConfig, task: str) -> None:
    """Biases exist on the separate matrices only."""
    if config.use_qkv_bias and not config.use_qkv_split:
        raise FieldError(
            ["use_qkv_bias", "use_qkv_split"],
            "use_qkv_bias needs use_qkv_split",
            "set use_qkv_split to true, or use_qkv_bias to false",
        )


def options_need_replaced_layers(config: TrainingConfig, task: str) -> None:
    """Hugging Face's own layers have every bias; only their replacements can do without."""
    if config.replace_layers:
        return
    switched_off = [name for name in LAYER_OPTIONS if getattr(config, name) is False]
    if switched_off:
        raise FieldError(
            ["replace_layers", switched_off[0]],
            "Hugging Face's own layers cannot leave it out",
            f"set replace_layers to true, or leave {switched_off[0]} unset",
        )


def narrow_formats_need_replaced_layers(config: TrainingConfig, task: str) -> None:
    """Hugging Face's own layers compute in float32."""
    if not config.replace_layers and config.execution.precision in ("float16", "bfloat16"):
        raise FieldError(
            ["execution.precision", "replace_layers"],
            "Hugging Face's own layers are float32",
            "set execution.precision to float32, or replace_layers to true",
        )


def sharded_state_is_offchip_on_ipus(config: TrainingConfig, task: str) -> None:
    """Graphcore's resource update shards only optimizer state that is kept off the chip."""
    sharded = config.ipu_config.replicated_tensor_sharding
    if sharded and not config.optimizer_state_offchip and runs_on_ipus(config):
        raise FieldError(
            ["optimizer_state_offchip", "ipu_config.replicated_tensor_sharding"],
            "on IPUs sharded optimizer state must be off the chip",
            "set optimizer_state_offchip to true, or replicated_tensor_sharding to false",
        )


def data_is_named(config: TrainingConfig, task: str) -> None:
    """Pre-training reads a folder or makes data up."""
    if task == PRETRAINING and config.dataset_dir is None and not config.generated_dataset:
        raise FieldError(
            ["dataset_dir"],
            "pre-training needs data",
            "set dataset_dir (or --dataset-dir PATH), or generated_dataset to true for random data",
        )


def training_has_a_length(config: TrainingConfig, task: str) -> None:
    """A run that trains knows when to end."""
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
    """At least one global batch."""
    samples, batch = (
        config.total_num_train_samples,
        math.ceil(config.samples_per_update * (packing_factor(config) or 1)),
    )
    if samples is not None and samples < batch:
        raise FieldError(
            ["total_num_train_samples"],
            f"not one weight update: a global batch has {batch} samples",
            f"set total_num_train_samples to {batch} or more, or lower global_batch.grad_acc_steps_per_replica",
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
    if config.do_test and task != CLASSIFICATION:
        raise FieldError(
            ["do_test"], f"{task} has no test set", "set do_test to false, or use run_seq_classification.py"
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
    """Several runs in one, of a task whose scores vary with the seed."""
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
        raise FieldError(["name"], "the run's folder is named so", r"use a name without / \ : and control characters")
    if len(name.encode("utf-8")) > 200:
        raise FieldError(["name"], "too long for a folder's name", "use a name of at most 200 bytes")


RULES: Tuple[Rule, ...] = (
    *sparsity_rules.RULES,
    model_is_named,
    model_name_is_for_fine_tuning,
    heads_divide_hidden_size,
    vocabulary_divides,
    sequence_holds_special_tokens,
    sequence_fits_positions,
    question_leaves_room,
    predictions_fit_sequence,
    packs_hold_their_sequences,
    *pipeline_rules.RULES,
    options_need_replaced_layers,
    narrow_formats_need_replaced_layers,
    sharded_state_is_offchip_on_ipus,
    qkv_bias_needs_split,
    data_is_named,
    training_has_a_length,
    random_data_has_a_length,
    training_has_a_step,
    something_is_done,
    pretraining_trains,
    test_is_for_classification,
    evaluation_has_weights,
    glue_task_fits,
    seeds_are_for_classification,
    name_is_a_folder_name,
)


def broken_rules(config: TrainingConfig, task: str) -> List[FieldError]:
    """Every rule's complaint about ``config``, in the order of ``RULES``."""
    problems: List[FieldError] = []
    for rule in RULES:
        try:
            rule(config, task)
        except FieldError as problem:
            problems.append(problem)
    return problems
