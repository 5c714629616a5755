"""Rules of the model: sizes, blocks and layers."""

from __future__ import annotations

import math
from typing import Iterator

from model.architecture import BLOCK_NAMES, HID, LAYER_OPTIONS
from model.tasks import accepted_blocks
from settings.architecture import known_architecture, next_multiple
from settings.derived import STAGES, fits_stages
from settings.problems import SettingError, nearest, show
from settings.schema import TrainingConfig


def model_sizes(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    given, factor = config.bert_config, config.embedding_serialization_factor
    known = known_architecture(config, task)
    if given is None and known is not None and known.hidden_size % known.num_attention_heads:
        reason = f"its {known.num_attention_heads} heads do not divide its hidden_size, {known.hidden_size}"
        yield SettingError([config.weights_key], reason, "name a BERT with the file of its weights")
    if given is not None and given.hidden_size % given.num_attention_heads:
        near = _nearest_divisor(given.hidden_size, given.num_attention_heads)
        reason = "the heads must divide hidden_size"
        fix = f"set num_attention_heads to {near}, or hidden_size to a multiple of {given.num_attention_heads}"
        yield SettingError(["bert_config.num_attention_heads", "bert_config.hidden_size"], reason, fix)
    if given is not None and given.vocab_size % factor:
        padded = next_multiple(given.vocab_size, factor)
        yield SettingError(
            ["embedding_serialization_factor", "bert_config.vocab_size"],
            "the factor must divide vocab_size",
            f"set embedding_serialization_factor to {_nearest_divisor(given.vocab_size, factor)}, or "
            f"vocab_size to {padded}",
        )
    if known is not None and config.max_seq_length > known.max_position_embeddings:
        limit = known.max_position_embeddings
        fields = ["max_seq_length", "bert_config.max_position_embeddings" if given else config.weights_key]
        fix = f"set max_seq_length to at most {limit}" + (", or raise max_position_embeddings" if given else "")
        yield SettingError(fields, f"sequences are longer than the model's {limit} positions", fix)


def _nearest_divisor(number: int, target: int) -> int:
    small = [candidate for candidate in range(1, math.isqrt(number) + 1) if number % candidate == 0]
    divisors = [*small, *(number // candidate for candidate in reversed(small))]
    return min(divisors, key=lambda divisor: abs(divisor - target))


def stage_blocks(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    """Yield the problems of the blocks: an unknown one, their number, their order, a stage without any."""
    given = config.ipu_config.pipeline_stages or []
    blocks = [block for stage in given for block in stage]
    sizes = known_architecture(config, task)
    unknown = [(number, block) for number, stage in enumerate(given) for block in stage if block not in BLOCK_NAMES]
    for number, block in unknown[:1]:
        guess = "the separate texts " + show(block.split()) if " " in block else nearest(block, BLOCK_NAMES)
        hint = f"did you mean {guess}?" if guess else f"use the blocks {', '.join(BLOCK_NAMES)}"
        yield SettingError([STAGES], f"stage {number} has an unknown block {show(block)}", hint)
    layers = blocks.count(HID)
    if sizes is not None and not fits_stages(given or None, sizes):
        depth = "bert_config.num_hidden_layers"
        yield SettingError(
            [STAGES, depth if config.bert_config else config.weights_key],
            f"the stages have {layers} hid but the model has {sizes.num_hidden_layers} encoder layers",
            f"write {sizes.num_hidden_layers} hid in pipeline_stages"
            + (f", or set {depth} to {layers}" if config.bert_config else ""),
        )
    accepted = accepted_blocks(task, layers, config.use_next_sentence)
    if blocks and not unknown and blocks not in accepted:
        forms = " or ".join(" ".join(form).replace(" ".join([HID] * layers), "hid…") for form in accepted)
        reason = f"these are not the blocks of {task} in their order"
        yield SettingError([STAGES], reason, f"write, split as you like: {forms}")
    if [] in given:
        reason = "a stage has only pool, which is left out without next-sentence prediction"
        yield SettingError([STAGES, "use_next_sentence"], reason, "write pool in the stage of heads")


def layer_options(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    switched_off = [name for name in LAYER_OPTIONS if getattr(config, name) is False]
    if not config.replace_layers and switched_off:
        fix = f"set replace_layers to true, or leave {switched_off[0]} unset"
        yield SettingError(["replace_layers", switched_off[0]], "Hugging Face's own layers cannot leave it out", fix)
    if not config.replace_layers and config.execution.precision not in ("auto", "float32"):
        fix = "set execution.precision to float32, or replace_layers to true"
        yield SettingError(["execution.precision", "replace_layers"], "Hugging Face's own layers are float32", fix)
    if config.use_qkv_bias and not config.use_qkv_split:
        fix = "set use_qkv_split to true, or use_qkv_bias to false"
        yield SettingError(["use_qkv_bias", "use_qkv_split"], "use_qkv_bias needs use_qkv_split", fix)


RULES = (model_sizes, stage_blocks, layer_options)
