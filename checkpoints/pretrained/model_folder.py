"""Names of the files in other projects' folders, and the settings that are stored with the weights.

Settings are ``config.json`` or Google's ``bert_config.json``, the vocabulary, and the tokenizer's settings.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Dict, Optional

from pydantic import Field, ValidationError, field_validator
from typing_extensions import Annotated, Literal

from data_utils.tokenizer_files import TokenizerFiles
from model.architecture import LAYER_OPTIONS, Architecture
from utilities.errors import UserError
from utilities.files import read_json_object
from utilities.validation import Strict, first_problem

CONFIG, GOOGLE_CONFIG = "config.json", "bert_config.json"
SAFETENSORS, PYTORCH, HDF5 = "model.safetensors", "pytorch_model.bin", "tf_model.h5"
# Of sentence-transformers; each of the modules has a folder of its own.
MODULES, LENGTH, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
PUT_CONFIG = f"put the config that it was trained with beside it, as {GOOGLE_CONFIG}"  # where weights lack a size
RUN_SECTION = "bert_config"  # of a run's config, which has the model's settings
INDEX = ".index.json"  # suffix of the file that lists which of several files has each weight

_Size = Annotated[int, Field(ge=1)]
_Share = Annotated[float, Field(ge=0, lt=1)]


class _Settings(Strict):
    """The settings of a BERT. Those with a single value have it by default; with another, the model is not a BERT."""

    model_type: Literal["bert"] = "bert"
    position_embedding_type: Literal["absolute"] = "absolute"
    is_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False
    tie_word_embeddings: Literal[True] = True
    quantization_config: None = None
    pruned_heads: Dict[str, Any] = Field(default={}, max_length=0)
    hidden_size: _Size
    vocab_size: _Size
    num_attention_heads: _Size
    num_hidden_layers: _Size
    intermediate_size: _Size
    max_position_embeddings: _Size
    type_vocab_size: _Size = 2
    hidden_dropout_prob: _Share = 0.1
    attention_probs_dropout_prob: _Share = 0.1
    initializer_range: _Share = 0.02
    layer_norm_eps: _Share = 1e-12
    hidden_act: Literal[
        "gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate", "relu", "silu", "swish",
        "tanh", "sigmoid"
    ] = "gelu"  # fmt: skip

    @field_validator("num_attention_heads")
    @classmethod
    def _divides_the_width(cls, heads: int, info: Any) -> int:
        width = info.data.get("hidden_size")
        if width is not None and width % heads:
            raise ValueError(f"the heads should divide hidden_size, which is {width}")
        return heads


# The names under which Hugging Face has some activations again.
_SAME_ACTIVATION = {
    "gelu_python": "gelu", "gelu_pytorch_tanh": "gelu_new", "gelu_fast": "gelu_new", "gelu_accurate": "gelu_new",
    "swish": "silu",
}  # fmt: skip


def config_file(folder: Path) -> Optional[Path]:
    """Return the file of the model's settings in a folder; None if there is none."""
    return next((folder / name for name in (CONFIG, GOOGLE_CONFIG) if (folder / name).is_file()), None)


def read_config(folder: Path, key: str) -> Dict[str, Any]:
    """Read the model's settings from Hugging Face's or Google's file, or from a run's config; ``_path`` is the file."""
    path = config_file(folder)
    if path is None:
        raise UserError(f"{key}: {folder} has weights but no {CONFIG} ({GOOGLE_CONFIG}); put it there")
    values = read_json_object(path, f"{key}: ")
    section = values.get(RUN_SECTION)
    return {**(section if isinstance(section, dict) else values), "_path": str(path)}


def read_architecture(config: Dict[str, Any], key: str) -> Dict[str, Any]:
    """Return the fields of :class:`model.architecture.Architecture` for settings from :func:`read_config`."""
    try:
        settings = _Settings.model_validate(config)
    except ValidationError as error:
        raise UserError(
            f"{key}: {config['_path']}: {first_problem(error)}; name a BERT model with the file of its weights"
        ) from error
    fields = set(_Settings.model_fields) & {field.name for field in dataclasses.fields(Architecture)}
    return {
        **settings.model_dump(include=fields),
        "hidden_act": _SAME_ACTIVATION.get(settings.hidden_act, settings.hidden_act),
        **dict.fromkeys(LAYER_OPTIONS, True),  # Hugging Face's models have all parts that are optional here
    }


def find_lower_case(folder: Path, files: TokenizerFiles) -> Optional[bool]:
    """Return whether text was lower-cased, by Hugging Face's files or the name of Google's folder; None if unknown."""
    lower_case = files.lower_case
    if lower_case is None and (folder / GOOGLE_CONFIG).is_file():
        name = folder.resolve().name.lower()
        if name.startswith(("uncased", "chinese", "multilingual")):
            return True
        if name.startswith(("cased", "multi_cased")):
            return False
    return lower_case
