"""Names of the files in other projects' folders, and the settings that are stored with the weights.

Settings are ``config.json`` or Google's ``bert_config.json``, the vocabulary, and the tokenizer's settings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional

from data_utils import tokenizer
from data_utils.tokenizer import vocab_txt
from model.architecture import LAYER_OPTIONS
from utilities.errors import UserError
from utilities.files import read_json_object

CONFIG, GOOGLE_CONFIG = "config.json", "bert_config.json"
SAFETENSORS, PYTORCH, HDF5 = "model.safetensors", "pytorch_model.bin", "tf_model.h5"
INDEX = ".index.json"  # suffix of the file that lists which of several files has each weight

_EXACT_GELU, _TANH_GELU = "gelu", "gelu_new"
_ACTIVATIONS = {
    "gelu": _EXACT_GELU,
    "gelu_python": _EXACT_GELU,
    "gelu_new": _TANH_GELU,
    "gelu_pytorch_tanh": _TANH_GELU,
    "gelu_fast": _TANH_GELU,
    "gelu_accurate": _TANH_GELU,
}
_SIZES = (
    "hidden_size", "vocab_size", "num_attention_heads", "num_hidden_layers", "intermediate_size",
    "max_position_embeddings", "type_vocab_size",
)  # fmt: skip
_CONSTANTS = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
# Settings that must have BERT's value, which is also their default; with another value the model is not a BERT.
_FIXED = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
}


def read_config(folder: Path, key: str) -> Dict[str, Any]:
    """Read the model's settings from Hugging Face's or Google's file; ``_path`` is the file.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    path = next((folder / name for name in (CONFIG, GOOGLE_CONFIG) if (folder / name).is_file()), None)
    if path is None:
        raise UserError(f"{key}: {folder} has weights but no {CONFIG} ({GOOGLE_CONFIG}); put it there")
    return {**read_json_object(path, f"{key}: "), "_path": str(path)}


def read_architecture(config: Dict[str, Any], key: str) -> Dict[str, Any]:
    """Return the fields of :class:`model.architecture.Architecture` for settings from :func:`read_config`.

    Raises:
        UserError: the model is not a BERT, or has parts that this project does not support.
    """
    path = config["_path"]
    for name, value in _FIXED.items():
        if config.get(name, value) != value:
            raise UserError(
                f"{key}: {path}: {name} is {config[name]!r}, only {value!r} can be loaded; name a BERT model"
            )
    missing = [name for name in _SIZES if type(config.get(name)) is not int or config[name] < 1]
    if missing:
        raise UserError(
            f"{key}: {path}: {missing[0]} is missing or not a whole number above 0; use the file of the weights"
        )
    activation = config.get("hidden_act", _EXACT_GELU)
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise UserError(f"{key}: {path}: hidden_act is {activation!r}, not one of {known}; name another model")
    constants = {name: config.get(name, value) for name, value in _CONSTANTS.items()}
    for name, value in constants.items():
        if type(value) not in (int, float) or not 0 <= value < 1:
            raise UserError(
                f"{key}: {path}: {name} is {value!r}, not a number from 0 up to 1; use the file of the weights"
            )
    return {
        **{name: config[name] for name in _SIZES},
        **{name: float(value) for name, value in constants.items()},
        "hidden_act": _ACTIVATIONS[activation],
        **dict.fromkeys(LAYER_OPTIONS, True),  # Hugging Face's models have all parts that are optional here
    }


def count_word_pieces(vocabulary: Path) -> int:
    return len(vocab_txt(vocabulary).rstrip(b"\r\n").split(b"\n"))


def find_lower_case(folder: Path, key: str) -> Optional[bool]:
    """Return whether a model was trained on lower-cased text; None if unknown.

    The answer is in Hugging Face's files or in the name of Google's folder.
    """
    lower_case = tokenizer.find_lower_case(folder, f"{key}: ")
    if lower_case is None and (folder / GOOGLE_CONFIG).is_file():
        name = folder.resolve().name.lower()
        if name.startswith(("uncased", "chinese", "multilingual")):
            return True
        if name.startswith(("cased", "multi_cased")):
            return False
    return lower_case
