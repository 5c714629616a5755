"""The architecture of a run: the config's sizes, and what the weights decide where the config says nothing."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Dict, Optional

from model.architecture import Architecture
from training.start import Start
from utilities.config.figures import LAYER_OPTIONS, architecture_of, sparsity_options
from utilities.config.schema import TrainingConfig
from utilities.errors import UserError

logger = logging.getLogger(__name__)

# Sizes that the weights have, whatever is asked for. The vocabulary is none: its tables can be lengthened and cut.
SIZES = (
    "hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "max_position_embeddings",
    "type_vocab_size",
)  # fmt: skip
_DECIDED = ("hidden_act", "layer_norm_eps")  # by the weights, unless the config says otherwise


def resolved_architecture(config: TrainingConfig, start: Optional[Start], activation: str = "gelu") -> Architecture:
    """What to build.

    Args:
        start: the weights to start from; None for random ones.
        activation: ``hidden_act`` where neither config nor weights say any.

    Raises:
        UserError: the weights have other sizes than the config, or fewer positions than its sequences.
    """
    if start is None:
        architecture = architecture_of(config)
        assert architecture is not None, "the rules ask for bert_config where no weights are named"
        return dataclasses.replace(architecture, **_activation(config, activation))
    if config.bert_config is None:
        architecture = _of_weights(config, start)
    else:
        given = architecture_of(config)
        assert given is not None
        _check_sizes(given, start)
        given = dataclasses.replace(given, **_activation(config, activation))
        architecture = dataclasses.replace(given, **_unsaid(config, start))
    if config.max_seq_length > architecture.max_position_embeddings:
        raise UserError(
            f"max_seq_length is {config.max_seq_length}, but {start.origin} has {architecture.max_position_embeddings}"
            " positions; set max_seq_length to at most that"
        )
    return dataclasses.replace(architecture, **_options(config, start, architecture))


def _options(config: TrainingConfig, start: Start, architecture: Architecture) -> Dict[str, bool]:
    """Options of the layers: the config's, else the weights', else as ``architecture`` has them."""
    if not config.replace_layers:  # Hugging Face's own layers leave nothing out
        return dict.fromkeys(LAYER_OPTIONS, True)
    options = {name: start.architecture.get(name, getattr(architecture, name)) for name in LAYER_OPTIONS}
    options.update({name: getattr(config, name) for name in LAYER_OPTIONS if getattr(config, name) is not None})
    if not options["use_qkv_split"]:  # one matrix for all three has no biases
        options["use_qkv_bias"] = False
    return options


def _of_weights(config: TrainingConfig, start: Start) -> Architecture:
    """The architecture of the weights, for a config without sizes."""
    missing = [name for name in SIZES if name not in start.architecture]
    if missing:
        raise UserError(f"{start.origin} does not tell its {missing[0]}; add the section bert_config")
    factor = config.embedding_serialization_factor
    if start.architecture["vocab_size"] % factor:
        logger.warning("embedding_serialization_factor %d does not divide the vocabulary, so it is 1", factor)
        factor = 1
    own = {"embedding_serialization_factor": factor, **sparsity_options(config)}
    return Architecture(**{**start.architecture, **own})


def _check_sizes(given: Architecture, start: Start) -> None:
    for size in SIZES:
        value = start.architecture.get(size, getattr(given, size))
        if getattr(given, size) != value:
            raise UserError(
                f"bert_config.{size} is {getattr(given, size)}, but {start.origin} was trained with"
                f" {value}; set it to that, or name another checkpoint"
            )


def _activation(config: TrainingConfig, activation: str) -> Dict[str, str]:
    """The activation, where the config says none."""
    said = config.bert_config is not None and "hidden_act" in config.bert_config.model_fields_set
    return {} if said else {"hidden_act": activation}


def _unsaid(config: TrainingConfig, start: Start) -> Dict[str, Any]:
    """What the weights decide; a warning where the config decides otherwise."""
    said, trained = config.bert_config, start.architecture
    assert said is not None
    decided: Dict[str, Any] = {}
    for name in _DECIDED:
        if name not in said.model_fields_set:
            decided.update({name: trained[name]} if name in trained else {})
        elif getattr(said, name) != trained.get(name, getattr(said, name)):
            logger.warning(
                "bert_config.%s is %s, but %s was trained with %s: its results will differ",
                name, getattr(said, name), start.origin, trained[name],
            )  # fmt: skip
    return decided
