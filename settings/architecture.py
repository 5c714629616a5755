"""The model's architecture: from the config, and from what the weights that it names state.

A size that no config sets is that of the weights. So is, in fine-tuning, one that only a recipe of this project sets:
recipes are for any weights. A size in a user's own config or flag is checked against the weights. What weights state
is read from a file in their folder; where no file states it, the architecture is unknown until they are opened.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from pydantic import ValidationError

from model.architecture import LAYER_OPTIONS, RUN_OPTIONS, Architecture
from model.tasks import PRETRAINING
from settings.fields import value_at
from settings.metadata import stated_in
from settings.problems import DEFAULT
from settings.schema import TrainingConfig
from settings.sections import FIXED_SIZES, SIZES, BertConfig
from utilities.errors import UserError
from utilities.files import PROJECT

_SHAPE = tuple(name for name in BertConfig.model_fields if name != "position_embedding_type")
OF_EMBEDDING = ("pooling", "normalize")  # fields of ``embedding`` that the weights decide, unless they are set
OF_WEIGHTS = ("hidden_act", "layer_norm_eps")  # with sizes in the config, too, unless it sets them
_FROM_SCRATCH = dict(zip(LAYER_OPTIONS, (False, False, False, False, True)))
_HUGGING_FACE = dict.fromkeys(LAYER_OPTIONS, True)  # whose layers have all of these parts
_PADDED_TO = 128  # rows; vocabularies are padded to a multiple of 8, 64 or 128 for speed

# Sizes of Devlin et al. 2019, section 3, by the beginning of the names of released models.
_BASE = {"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12, "intermediate_size": 3072}
_LARGE = {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 24, "intermediate_size": 4096}
_NAMED_SIZES = {"bert-base-": _BASE, "bert-large-": _LARGE}
_NAMED_VOCABULARIES = {  # the first whose name occurs
    "-multilingual-uncased": 105879, "-multilingual-cased": 119547,
    "-uncased": 30522, "-cased": 28996, "-chinese": 21128,
}  # fmt: skip


def follow_weights(
    config: TrainingConfig, task: str, origins: Mapping[str, str]
) -> Tuple[TrainingConfig, List[str], List[str]]:
    """Fill in the sizes of the weights, as far as a file in their folder states them.

    The result has the config, the dotted names of the sizes that the weights decide, and a note about a recipe's that
    gave way.
    """
    given = config.bert_config
    if given is None or config.weights is None:
        return config, [], []
    recipe = [name for name in SIZES if task != PRETRAINING and _is_recipe(origins.get(f"bert_config.{name}", DEFAULT))]
    opened = BertConfig.model_construct(given.model_fields_set.difference(recipe), **given.model_dump())
    config = config.model_copy(update={"bert_config": opened})
    known = known_architecture(config, task)
    if known is None:
        return config, [], []
    changes = [
        f"{name} {getattr(given, name)} → {getattr(known, name)}"
        for name in recipe
        if getattr(given, name) != getattr(known, name)
    ]
    notes = [f"{config.weights} has other sizes than the recipe, and they are used: {', '.join(changes)}"]
    names = [f"bert_config.{name}" for name in config.open_sizes]
    return with_sizes(config, known), names, notes if changes else []


def known_architecture(config: TrainingConfig, task: str) -> Optional[Architecture]:
    """Return the architecture before the weights are opened; None if they must be opened to know it.

    Layer options that nothing states are those of training from scratch, or of Hugging Face for one of its names.
    """
    stated = _stated(config.weights, config.weights_key)
    if not _are_sizes(stated):  # the loader of checkpoints reports the folder's problem
        stated = {}
    if (config.bert_config is None or config.open_sizes) and "num_hidden_layers" not in stated:
        return None
    if task == PRETRAINING and isinstance(stated.get("vocab_size"), int):
        stated = {**stated, "vocab_size": next_multiple(stated["vocab_size"], config.embedding_serialization_factor)}
    return combined_architecture(config, stated)


def check_known_sizes(config: TrainingConfig, task: str) -> None:
    """Refuse sizes that differ from those of the weights, as far as a file in their folder states them."""
    known = known_architecture(config, task)
    stated = {} if config.weights is None else stated_in(Path(config.weights))
    if known is not None and _are_sizes(stated):
        check_sizes(known, stated, str(config.weights))


def check_sizes(architecture: Architecture, stated: Mapping[str, Any], origin: str) -> None:
    """Refuse other sizes than those that weights state."""
    for size in FIXED_SIZES:
        given, trained = getattr(architecture, size), stated.get(size)
        if trained is not None and given != trained:
            raise UserError(
                f"bert_config.{size} is {given}, but {origin} was trained with {trained}; set it to that, leave all"
                " sizes to the weights (--bert-config none), or name another checkpoint"
            )


def combined_architecture(config: TrainingConfig, stated: Mapping[str, Any], activation: str = "gelu") -> Architecture:
    """Return the architecture of a config and of what the weights state (empty: they are random).

    The ``activation`` is ``hidden_act`` if a section of sizes is given, and neither it nor the weights set it.
    """
    given = config.bert_config
    if given is None:
        shape = {name: stated[name] for name in _SHAPE if name in stated}
    else:
        of_weights = [*config.open_sizes, *(name for name in OF_WEIGHTS if name not in given.model_fields_set)]
        opened = {name: stated[name] for name in of_weights if name in stated}
        if isinstance(opened.get("vocab_size"), int):
            opened["vocab_size"] = next_multiple(opened["vocab_size"], config.embedding_serialization_factor)
        default = {} if "hidden_act" in given.model_fields_set else {"hidden_act": activation}
        shape = {**given.model_dump(include=set(_SHAPE)), **default, **opened}
    if config.replace_layers:
        layers = dict(_FROM_SCRATCH if config.bert_model_name is None else _HUGGING_FACE)
        layers.update({name: stated[name] for name in LAYER_OPTIONS if name in stated})
        layers.update({name: getattr(config, name) for name in LAYER_OPTIONS if getattr(config, name) is not None})
        layers["use_qkv_bias"] = layers["use_qkv_bias"] and layers["use_qkv_split"]  # the joint matrix has none
    else:
        layers = dict(_HUGGING_FACE)
    return Architecture(**{**shape, **layers}, **run_options(config, shape.get("vocab_size", 0)))


def run_options(config: TrainingConfig, vocab_size: int) -> Dict[str, Any]:
    """Return the fields of the architecture that are the config's, as far as it sets them.

    An ``embedding_serialization_factor`` that does not divide the vocabulary of weights is 1.
    """
    values = {name: value_at(config, field) for name, field in RUN_OPTIONS.items()}
    if vocab_size % config.embedding_serialization_factor:
        values["embedding_serialization_factor"] = 1
    given = {name: value for name, value in values.items() if value is not None}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def options_come_from_checkpoint(config: TrainingConfig) -> bool:
    """Return whether a layer option is unknown until the checkpoint is loaded."""
    if config.pretrained_ckpt_path is None:
        return False
    stated = _stated(config.weights, config.weights_key)
    return any(getattr(config, name) is None and name not in stated for name in LAYER_OPTIONS)


def with_sizes(config: TrainingConfig, architecture: Architecture) -> TrainingConfig:
    """Return the config with the values of the sizes that the weights decide, which stay theirs to decide."""
    given, values = config.bert_config, {name: getattr(architecture, name) for name in config.open_sizes}
    if given is None or not values:
        return config
    filled = BertConfig.model_construct(set(given.model_fields_set), **{**given.model_dump(), **values})
    return config.model_copy(update={"bert_config": filled})


def next_multiple(rows: int, factor: int) -> int:
    """Return the number of rows, raised to the next multiple of a factor."""
    return -(-rows // factor) * factor


def exceeds_padding(rows: int, needed: int, factor: int) -> bool:
    """Return whether a word table has more rows than are needed, by more than padding, given its serialization."""
    return rows > next_multiple(needed, _PADDED_TO * factor)


def _stated(weights: Optional[str], key: str) -> Dict[str, Any]:
    """Return the sizes and layer options of weights, as far as a file or a released name tells."""
    if weights is None:
        return {}
    stated = stated_in(Path(weights))
    return _named_sizes(weights) if not stated and key == "bert_model_name" else stated


def _are_sizes(stated: Mapping[str, Any]) -> bool:
    """Return whether the values are such as a section of sizes has."""
    try:
        BertConfig(**{name: stated[name] for name in _SHAPE if name in stated})
    except ValidationError:
        return False
    return True


def _is_recipe(origin: str) -> bool:
    """Return whether a value comes from one of this project's configs."""
    folder = os.path.realpath(PROJECT / "configs") + os.sep
    return os.path.isfile(origin) and os.path.realpath(origin).startswith(folder)


def _named_sizes(model_name: str) -> Dict[str, Any]:
    """Return all sizes of a model of Devlin et al. by its name; empty for other names."""
    short = model_name.rsplit("/", 1)[-1]
    for beginning, sizes in _NAMED_SIZES.items():
        if short.startswith(beginning):
            pieces = next((n for part, n in _NAMED_VOCABULARIES.items() if part in short), None)
            named = {**sizes, **({"vocab_size": pieces} if pieces else {})}
            return BertConfig.model_validate(named).model_dump(include=set(SIZES))
    return {}
