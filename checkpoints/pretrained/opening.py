"""Opens a checkpoint of any origin, by path or by the name of a model of huggingface.co."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

from checkpoints.folder import DESCRIPTION, Checkpoint, find_checkpoint, newest_tensorflow, step_folders
from checkpoints.pretrained import hub_model
from checkpoints.pretrained.formats import (
    FORMATS,
    find_weights_file,
    is_weights_file,
    open_tensorflow,
    open_weights_file,
)
from checkpoints.pretrained.model_folder import MODULES, config_file, find_lower_case, read_architecture, read_config
from checkpoints.pretrained.naming import check_exists, weights_prefix
from checkpoints.pretrained.native_checkpoint import native_weights, neutral_weights
from checkpoints.pretrained.pretrained import Pretrained
from checkpoints.pretrained.published_program import ACTIVATION, published_checkpoint
from checkpoints.pretrained.sentence_transformers import ENCODER_FOLDER
from checkpoints.pretrained.weights import WORD_TABLE, Weights, from_google, renamed, with_head_name, without_optimizer
from data_utils.tokenizer import find_vocabulary
from data_utils.tokenizer_files import VOCABULARY_NAME, TokenizerFiles, read_tokenizer_files
from model.architecture import RUN_OPTIONS
from model.tasks import PRETRAINING, SQUAD
from utilities.errors import UserError
from utilities.run_names import CHECKPOINT_LIST
from utilities.text_folder import model_folder  # room: from_text

logger = logging.getLogger(__name__)

ADAPTER = "adapter_config.json"  # of PEFT, whose weights change those of another model
MERGE = "merge it into the weights (PEFT: merge_and_unload)"
_UNREAD = ("flax_model.msgpack", ".onnx", ".gguf", ".ot", ".tflite", "model.ckpt", ".pb")  # weights in other formats


def open_pretrained(name_or_path: str, key: str, allow_missing_weights: bool = False) -> Pretrained:
    """Open a checkpoint. Its arrays are read when a model is filled.

    Args:
        name_or_path: a run's folder, or a checkpoint of this project; a Hugging Face
            folder or file (safetensors, ``pytorch_model.bin``, ``tf_model.h5``); a TensorFlow checkpoint of Google's
            BERT or of Graphcore's published program; and, if ``key`` is ``bert_model_name``, a model of huggingface.co.
    """
    return dataclasses.replace(_open(name_or_path, key), key=key, allow_missing=allow_missing_weights)


def _open(name_or_path: str, key: str) -> Pretrained:
    path = Path(name_or_path)
    if path.is_dir():
        path = model_folder(path, key)  # room: from_text
        return _open_folder(path, str(path), key)
    check_exists(name_or_path, key)
    prefix = weights_prefix(path)
    if Path(f"{prefix}.index").is_file():
        return _open_tensorflow(find_checkpoint(prefix, key), key)
    if path.is_file() and is_weights_file(path):
        return _complete_bert(open_weights_file(path, key), path.parent, str(path), key)
    if path.exists():
        known = ", ".join(suffix for format in FORMATS for suffix in format.suffixes)
        raise UserError(f"{key}: {path} does not have the suffix of a weights file ({known}, .index); name its folder")
    return _open_folder(hub_model.fetch(name_or_path, key), f"{name_or_path} of huggingface.co", key)


def _open_folder(folder: Path, origin: str, key: str) -> Pretrained:
    weights_file, inner = find_weights_file(folder), folder / "checkpoints"
    is_own = (folder / DESCRIPTION).is_file() or step_folders(folder) or step_folders(inner)
    if is_own or (inner.is_dir() and weights_file is None):
        return _open_tensorflow(find_checkpoint(folder, key), key)
    if (folder / ADAPTER).is_file():
        raise UserError(f"{key}: {folder} has an adapter ({ADAPTER}); {MERGE}")
    if weights_file is not None:
        return _complete_bert(open_weights_file(weights_file, key), folder, origin, key)
    encoder = folder / ENCODER_FOLDER
    if (folder / MODULES).is_file() and encoder.is_dir():
        return dataclasses.replace(_open_folder(encoder, origin, key), folder=folder)
    prefix = newest_tensorflow(folder, key)
    if prefix is not None:
        return _open_tensorflow(Checkpoint(prefix, None), key)
    saved = [path.name for path in folder.glob("checkpoint-*") if find_weights_file(path) is not None]
    if saved:  # as Hugging Face's Trainer writes them
        last = max(saved, key=lambda name: (len(name), name))
        raise UserError(
            f"{key}: {folder} has no weights itself, but {len(saved)} checkpoints; name one: {folder / last}"
        )
    elsewhere = _checkpoints_elsewhere(folder)
    if elsewhere is not None and step_folders(elsewhere):
        raise UserError(f"{key}: the checkpoints of {folder} are in {elsewhere} (save_ckpt_path); name that folder")
    other = next((path.name for path in sorted(folder.iterdir()) if path.name.endswith(_UNREAD)), None)
    if other is not None:
        known = ", ".join(format.name for format in FORMATS)
        raise UserError(
            f"{key}: {folder} has {other}, which is not read; save the model in one of {known} where it can be loaded"
        )
    names = ", ".join(["step-… (checkpoints of this project)", *(format.name for format in FORMATS), "*.ckpt.index"])
    raise UserError(f"{key}: {folder} contains no weights (looked for {names}); name another folder")


def _checkpoints_elsewhere(folder: Path) -> Optional[Path]:
    """Return the folder into which the run of a folder wrote its last checkpoint; None if it says none."""
    try:
        return Path(json.loads((folder / CHECKPOINT_LIST).read_text(encoding="utf-8"))[-1]["folder"]).parent
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _complete_bert(weights: Weights, folder: Path, origin: str, key: str) -> Pretrained:
    """Return another project's weights with the settings in the same folder."""
    config = read_config(folder, key)
    adapter = next((name for name in weights if ".lora_" in name), None)
    if adapter is not None:
        raise UserError(f"{key}: {origin} has an adapter ({adapter}); {MERGE}")
    vocabulary, files = _tokenizer(folder, key)
    return Pretrained(
        origin=origin,
        weights=with_head_name(weights, config.get("architectures") or ()),
        architecture=read_architecture(config, key),
        vocabulary=vocabulary,
        lower_case=find_lower_case(folder, files),
        longest_text=files.longest_text,
        settings=config,
        folder=folder,
    )


def _tokenizer(folder: Path, key: str) -> Tuple[Optional[Path], TokenizerFiles]:
    """Return the vocabulary in a folder of weights, and what the tokenizer's other files there say."""
    vocabulary = find_vocabulary(folder)
    return vocabulary, read_tokenizer_files(vocabulary or folder / VOCABULARY_NAME, f"{key}: ")


def _open_tensorflow(checkpoint: Checkpoint, key: str) -> Pretrained:
    """Open a checkpoint of Google, of Graphcore's published program or of this project."""
    prefix, folder, description = checkpoint.weights, checkpoint.folder, checkpoint.description
    floats, integers = open_tensorflow(prefix)
    published = None
    if description is None:
        weights = renamed(without_optimizer(floats), from_google)
        if WORD_TABLE in weights:
            return _complete_bert(weights, folder, str(prefix), key)
        published = published_checkpoint(floats, integers)
    native, state = published or (native_weights(floats, integers, prefix, key), None)
    sizes = native.sizes()
    if description is not None:
        origin, vocabulary, lower_case = folder, checkpoint.vocabulary, description.get("lower_case")
        stated = {name: value for name, value in description.get("architecture", {}).items() if name not in RUN_OPTIONS}
        _refuse_other_sizes(sizes, stated, folder / DESCRIPTION, "name another checkpoint", key)
        architecture = {**sizes, **stated}
    else:
        origin, (vocabulary, files) = prefix, _tokenizer(folder, key)
        description, lower_case = {"task": native.task}, files.lower_case
        architecture = {**_stated_beside(folder, sizes, key), **sizes}
        if published is not None:
            description["precision"] = "float16"
            architecture.setdefault("hidden_act", ACTIVATION)
            if native.task == SQUAD:
                order = "was trained with the context before the question, and here the question comes first"
                logger.warning("%s %s; fine-tune it again before it answers", prefix, order)
    return Pretrained(
        origin=str(origin),
        weights=native.weights,
        architecture=architecture,
        vocabulary=vocabulary,
        lower_case=lower_case,
        trained_positions=description.get("trained_positions"),
        neutral_weights=neutral_weights(
            native.weights,
            architecture.get("layer_norm_eps", 0.0),
            native.task == PRETRAINING,
            architecture.get("hidden_act", "gelu"),
        ),
        unknown=native.unknown,
        settings=description,
        native=True,
        folder=folder,
        state=state,
    )


def _stated_beside(folder: Path, sizes: Dict[str, Any], key: str) -> Dict[str, Any]:
    """Return what a config beside weights says about them, which they do not show, such as the number of heads."""
    if config_file(folder) is None:
        return {}
    config = read_config(folder, key)
    stated = read_architecture(config, key)
    if "hidden_act" not in config:
        del stated["hidden_act"]
    _refuse_other_sizes(sizes, stated, Path(config["_path"]), "put the config of these weights there", key)
    return stated


def _refuse_other_sizes(sizes: Dict[str, Any], stated: Dict[str, Any], path: Path, fix: str, key: str) -> None:
    for name, size in sizes.items():
        if type(size) is int and stated.get(name, size) != size:
            raise UserError(f"{key}: {path}: {name} is {stated[name]}, but the weights have {size}; {fix}")
