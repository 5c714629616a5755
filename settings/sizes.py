"""The model's sizes before it is loaded: those of the config, and those of the weights that it names.

A size that no config sets is that of the weights. So is, in fine-tuning, one that only a recipe of this project sets:
recipes are for any weights. A size in a user's own config or flag is checked against the weights.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from model.tasks import PRETRAINING
from settings.metadata import saved_architecture
from settings.problems import DEFAULT
from settings.schema import TrainingConfig
from settings.sections import BertConfig
from utilities.files import PROJECT

# Sizes that the weights determine. The vocabulary's is apart from them, because its tables can be resized.
FIXED_SIZES = (
    "hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "max_position_embeddings",
    "type_vocab_size",
)  # fmt: skip
SIZES = (*FIXED_SIZES, "vocab_size")

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


def named_architecture(config: TrainingConfig) -> Dict[str, Any]:
    """Return the sizes and layer options of the weights to start from, as far as a file in their folder states them."""
    source = weights_key(config)
    return {} if source is None else saved_architecture(Path(getattr(config, source)))


def bert_sizes(config: TrainingConfig) -> Optional[BertConfig]:
    """Return the model's sizes: those of ``bert_config``, else those of a local folder or of a well-known name.

    None if the model must be loaded to know them.
    """
    own = config.bert_config
    if own is not None and not open_sizes(config):
        return own
    given = {} if own is None else own.model_dump(include=own.model_fields_set)
    saved = named_architecture(config)
    if "num_hidden_layers" in saved:
        with contextlib.suppress(ValueError):  # the loader of checkpoints reports the folder's problem
            known = {key: saved[key] for key in BertConfig.model_fields if key in saved}
            return BertConfig(**{**known, **_rows(config, known), **given})
    named = _named_sizes(config.bert_model_name or "") if config.pretrained_ckpt_path is None else None
    if named is None or own is None:
        return named
    return named.model_copy(update={**_rows(config, named.model_dump()), **given})


def open_sizes(config: TrainingConfig) -> List[str]:
    """Return the sizes of ``bert_config`` that the weights decide."""
    own = config.bert_config
    if own is None or weights_key(config) is None:
        return []
    return [name for name in SIZES if name not in own.model_fields_set]


def with_sizes(config: TrainingConfig, sizes: Mapping[str, Any]) -> TrainingConfig:
    """Return the config with these values of the sizes that the weights decide, which stay theirs to decide."""
    own, values = config.bert_config, {name: sizes[name] for name in open_sizes(config) if name in sizes}
    if own is None or not values:
        return config
    filled = BertConfig.model_construct(set(own.model_fields_set), **{**own.model_dump(), **values})
    return config.model_copy(update={"bert_config": filled})


def with_sizes_of_weights(config: TrainingConfig, architecture: Mapping[str, Any]) -> TrainingConfig:
    """Return the config with the sizes of weights to start from, and as many word pieces as can be divided."""
    return with_sizes(config, {**architecture, **_rows(config, architecture)})


def follow_weights(
    config: TrainingConfig, task: str, origins: Mapping[str, str]
) -> Tuple[TrainingConfig, List[str], List[str]]:
    """Fill in the sizes of the weights, as far as a file in their folder states them.

    Args:
        config: the config as files and flags give it.
        task: a name in ``model.tasks.TASKS``.
        origins: origin of every given value, by dotted name.

    Returns:
        The config, the dotted names of the sizes that the weights decide, and a note about a recipe's that gave way.
    """
    own, source = config.bert_config, weights_key(config)
    if own is None or source is None:
        return config, [], []
    recipe = [name for name in SIZES if task != PRETRAINING and _is_recipe(origins.get(f"bert_config.{name}", DEFAULT))]
    opened = BertConfig.model_construct(own.model_fields_set.difference(recipe), **own.model_dump())
    config = config.model_copy(update={"bert_config": opened})
    sizes = bert_sizes(config)
    if sizes is None:
        return config, [], []
    changes = [
        f"{name} {getattr(own, name)} → {getattr(sizes, name)}"
        for name in recipe
        if getattr(own, name) != getattr(sizes, name)
    ]
    notes = [f"{getattr(config, source)} has other sizes than the recipe, and they are used: {', '.join(changes)}"]
    names = [f"bert_config.{name}" for name in open_sizes(config)]
    return with_sizes(config, sizes.model_dump()), names, notes if changes else []


def _rows(config: TrainingConfig, architecture: Mapping[str, Any]) -> Dict[str, int]:
    """Return the rows of the word table, a multiple of ``embedding_serialization_factor``, if their number is known."""
    rows, factor = architecture.get("vocab_size"), config.embedding_serialization_factor
    return {"vocab_size": -(-rows // factor) * factor} if isinstance(rows, int) else {}


def _is_recipe(origin: str) -> bool:
    """Return whether a value comes from one of this project's configs."""
    folder = os.path.realpath(PROJECT / "configs") + os.sep
    return os.path.isfile(origin) and os.path.realpath(origin).startswith(folder)


def _named_sizes(model_name: str) -> Optional[BertConfig]:
    short = model_name.rsplit("/", 1)[-1]
    for beginning, sizes in _NAMED_SIZES.items():
        if short.startswith(beginning):
            vocabulary = next((n for part, n in _NAMED_VOCABULARIES.items() if part in short), None)
            return BertConfig.model_validate({**sizes, **({"vocab_size": vocabulary} if vocabulary else {})})
    return None
