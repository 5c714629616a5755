"""The architecture of a run: the config's sizes, and options that a checkpoint decides where the config does not."""

from __future__ import annotations

import dataclasses
from typing import Optional

from model.architecture import Architecture
from utilities.config.figures import LAYER_OPTIONS, architecture_of
from utilities.config.schema import TrainingConfig
from utilities.errors import UserError
from utilities.training.start import Start

SIZES = (
    "hidden_size", "vocab_size", "num_attention_heads", "num_hidden_layers", "intermediate_size",
    "max_position_embeddings", "type_vocab_size",
)  # fmt: skip


def resolved_architecture(config: TrainingConfig, start: Optional[Start]) -> Architecture:
    """What to build.

    Raises:
        UserError: the checkpoint has other sizes than the config.
    """
    architecture = architecture_of(config)
    assert architecture is not None, "the rules ask for an architecture"
    if start is None or start.architecture is None:
        return architecture
    trained = start.architecture
    for size in SIZES:
        if getattr(architecture, size) != trained[size]:
            raise UserError(
                f"bert_config.{size} is {getattr(architecture, size)}, but {start.origin} was trained with"
                f" {trained[size]}; set it to that, or name another pretrained_ckpt_path"
            )
    if not config.replace_layers:
        return architecture
    unset = {name: trained[name] for name in LAYER_OPTIONS if getattr(config, name) is None}
    return dataclasses.replace(architecture, **unset)
