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

from model.architecture import LAYER_OPTIONS, Architecture
from model.tasks import PRETRAINING
from settings.fields import OfModel, value_at
from settings.metadata import stated_in
from settings.problems import DEFAULT
from settings.schema import TrainingConfig, leaves
from settings.sections import BertConfig
from utilities.files import PROJECT

# Sizes that the weights determine. The vocabulary's is apart from them, because its tables can be resized.
FIXED_SIZES = (
    "hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "max_position_embeddings",
    "type_vocab_size",
)  # fmt: skip
SIZES = (*FIXED_SIZES, "vocab_size")

_SHAPE = tuple(name for name in BertConfig.model_fields if name != "position_embedding_type")
OF_EMBEDDING = ("pooling", "normalize")  # fields of ``embedding`` that the weights decide, unless they are set
OF_WEIGHTS = ("hidden_act", "layer_norm_eps")  # with sizes in the config, too, unless it sets them
_FROM_SCRATCH = dict(zip(LAYER_OPTIONS, (False, False, False, False, True)))
_HUGGING_FACE = dict.fromkeys(LAYER_OPTIONS, True)  # whose layers have all of these parts

# Sizes of Devlin et al. 2019, section 3, by the beginning of the names of released models.
_BASE = {"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12, "intermediate_size": 3072}
_LARGE = {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 24, "intermediate_size": 4096}
_NAMED_SIZES = {"bert-base-": _BASE, "bert-large-": _LARGE}
_NAMED_VOCABULARIES = {  # the first whose name occurs
    "-multilingual-uncased": 105879, "-multilingual-cased": 119547,
    "-uncased": 30522, "-cased": 28996, "-chinese": 21128,
}  # fmt: skip


def weights_key(config: TrainingConfig) -> Optional[str]:
    """Return the key that names the weights to start from; None if they are random."""
    keys = ("pretrained_ckpt_path", "bert_model_name")
    return next((key for key in keys if getattr(config, key) is not None), None)


def stated_architecture(config: TrainingConfig) -> Dict[str, Any]:
    """Return the sizes and layer options of the weights to start from, as far as a file or a released name tells."""
    source = weights_key(config)
    if source is None:
        return {}
    stated = stated_in(Path(getattr(config, source)))
    if stated or source != "bert_model_name":
        return stated
    return _named_sizes(config.bert_model_name or "")


def known_architecture(config: TrainingConfig, task: str) -> Optional[Architecture]:
    """Return the architecture before the weights are opened; None if they must be opened to know it.

    Layer options that nothing states are those of training from scratch, or of Hugging Face for one of its names.
    """
    stated = stated_architecture(config)
    if not _are_sizes(stated):  # the loader of checkpoints reports the folder's problem
        stated = {}
    if (config.bert_config is None or open_sizes(config)) and "num_hidden_layers" not in stated:
        return None
    if task == PRETRAINING:
        stated = {**stated, **_rows(config, stated)}
    return decided_architecture(config, stated)


def decided_architecture(config: TrainingConfig, stated: Mapping[str, Any], activation: str = "gelu") -> Architecture:
    """Return the architecture of a config and of what the weights state.

    Args:
        stated: sizes and layer options of the weights; empty: they are random.
        activation: ``hidden_act``, if the config has a section of sizes, and neither it nor the weights set it.
    """
    own, factor = config.bert_config, config.embedding_serialization_factor
    if own is None:
        shape = {name: stated[name] for name in _SHAPE if name in stated}
        factor = dividing_factor(config, stated.get("vocab_size", 0))
    else:
        of_weights = {name for name in OF_WEIGHTS if name not in own.model_fields_set}
        opened = {name: stated[name] for name in {*open_sizes(config), *of_weights} if name in stated}
        rows = _rows(config, opened)
        default = {} if "hidden_act" in own.model_fields_set else {"hidden_act": activation}
        shape = {**own.model_dump(include=set(_SHAPE)), **default, **opened, **rows}
    options = {"embedding_serialization_factor": factor, **_layer_options(config, stated), **run_options(config)}
    return Architecture(**shape, **options)


def dividing_factor(config: TrainingConfig, vocab_size: int) -> int:
    """Return ``embedding_serialization_factor``, or 1 if it does not divide the vocabulary of weights."""
    factor = config.embedding_serialization_factor
    return factor if vocab_size % factor == 0 else 1


def run_options(config: TrainingConfig) -> Dict[str, Any]:
    """Return the fields of the architecture that are the config's, as far as it sets them."""
    options = {leaf.annotation(OfModel): value_at(config, leaf.path) for leaf in leaves().values()}
    given = {field.name: value for field, value in options.items() if field is not None and value is not None}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def _layer_options(config: TrainingConfig, stated: Mapping[str, Any]) -> Dict[str, bool]:
    """Return the parts that layers have: the config's, else those of the weights, else the defaults."""
    if not config.replace_layers:
        return _HUGGING_FACE
    default = _HUGGING_FACE if config.bert_model_name is not None else _FROM_SCRATCH
    options = {**default, **{name: stated[name] for name in LAYER_OPTIONS if name in stated}}
    options.update({name: getattr(config, name) for name in LAYER_OPTIONS if getattr(config, name) is not None})
    return options if options["use_qkv_split"] else {**options, "use_qkv_bias": False}  # the joint matrix has none


def options_come_from_checkpoint(config: TrainingConfig) -> bool:
    """Return whether a layer option is unknown until the checkpoint is loaded."""
    stated = stated_architecture(config)
    unset = any(getattr(config, name) is None and name not in stated for name in LAYER_OPTIONS)
    return unset and config.pretrained_ckpt_path is not None


def open_sizes(config: TrainingConfig) -> List[str]:
    """Return the sizes of ``bert_config`` that the weights decide."""
    own = config.bert_config
    if own is None or weights_key(config) is None:
        return []
    return [name for name in SIZES if name not in own.model_fields_set]


def with_sizes(config: TrainingConfig, architecture: Architecture) -> TrainingConfig:
    """Return the config with the values of the sizes that the weights decide, which stay theirs to decide."""
    own, values = config.bert_config, {name: getattr(architecture, name) for name in open_sizes(config)}
    if own is None or not values:
        return config
    filled = BertConfig.model_construct(set(own.model_fields_set), **{**own.model_dump(), **values})
    return config.model_copy(update={"bert_config": filled})


def follow_weights(
    config: TrainingConfig, task: str, origins: Mapping[str, str]
) -> Tuple[TrainingConfig, List[str], List[str]]:
    """Fill in the sizes of the weights, as far as a file in their folder states them.

    The result has the config, the dotted names of the sizes that the weights decide, and a note about a recipe's that
    gave way.
    """
    own, source = config.bert_config, weights_key(config)
    if own is None or source is None:
        return config, [], []
    recipe = [name for name in SIZES if task != PRETRAINING and _is_recipe(origins.get(f"bert_config.{name}", DEFAULT))]
    opened = BertConfig.model_construct(own.model_fields_set.difference(recipe), **own.model_dump())
    config = config.model_copy(update={"bert_config": opened})
    known = known_architecture(config, task)
    if known is None:
        return config, [], []
    changes = [
        f"{name} {getattr(own, name)} → {getattr(known, name)}"
        for name in recipe
        if getattr(own, name) != getattr(known, name)
    ]
    notes = [f"{getattr(config, source)} has other sizes than the recipe, and they are used: {', '.join(changes)}"]
    names = [f"bert_config.{name}" for name in open_sizes(config)]
    return with_sizes(config, known), names, notes if changes else []


def _rows(config: TrainingConfig, sizes: Mapping[str, Any]) -> Dict[str, int]:
    """Return the rows of the word table, a multiple of ``embedding_serialization_factor``, if their number is known."""
    rows, factor = sizes.get("vocab_size"), config.embedding_serialization_factor
    return {"vocab_size": -(-rows // factor) * factor} if isinstance(rows, int) else {}


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
