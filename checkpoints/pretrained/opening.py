"""A checkpoint of any origin, by name, folder or file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict

from checkpoints.folder import (
    DESCRIPTION,
    Checkpoint,
    find_checkpoint,
    newest_tensorflow,
    step_folders,
)
from checkpoints.formats.tensorflow1 import open_tensorflow
from checkpoints.pretrained import hub
from checkpoints.pretrained.completion import stand_ins
from checkpoints.pretrained.files import KINDS, is_weights_file, open_file, weights_file
from checkpoints.pretrained.names import WORD_TABLE, from_google, renamed, with_named_head, without_slots
from checkpoints.pretrained.own import open_own, sizes_of
from checkpoints.pretrained.pretrained import Pretrained
from checkpoints.pretrained.settings import architecture_of_config, lower_case_of, read_config, vocabulary_of
from checkpoints.pretrained.weights import Weights
from utilities.errors import UserError

REMOTE_KEY = "bert_model_name"  # the one key that may name a model of huggingface.co
_DATA_FILE = re.compile(r"\.(?:index|data-\d+-of-\d+)$")


def open_pretrained(name_or_path: str, key: str, allow_missing_weights: bool = False) -> Pretrained:
    """Open a checkpoint; its arrays are read when a model is filled.

    Args:
        name_or_path: a run's folder or a checkpoint of this project; a Hugging Face folder or file (safetensors,
            ``pytorch_model.bin``, ``tf_model.h5``); a TensorFlow checkpoint of Google's BERT; and where ``key`` is
            ``bert_model_name``, a model of huggingface.co.
        key: config key or flag that named it, for messages.
        allow_missing_weights: let encoder weights that are missing start from random numbers.

    Raises:
        UserError: there is no such checkpoint, or it cannot be read.

    Example:
        >>> start = open_pretrained("bert-base-uncased", "bert_model_name")  # doctest: +SKIP
        >>> start.fill_source(model)  # doctest: +SKIP
    """
    path = Path(name_or_path)
    if path.is_dir():
        return _open_folder(path, str(path), key, allow_missing_weights)
    prefix = Path(_DATA_FILE.sub("", str(path)))
    if Path(f"{prefix}.index").is_file():
        return _open_tensorflow(find_checkpoint(prefix, key), key, allow_missing_weights)
    if path.is_file() and is_weights_file(path):
        return _open_hugging_face(path, str(path), key, allow_missing_weights)
    if path.exists():
        known = ", ".join(suffix for kind in KINDS for suffix in kind.suffixes)
        raise UserError(f"{key}: {path} is no weights file by its name ({known}, .index); name the folder it lies in")
    if key == REMOTE_KEY and hub.is_model_name(name_or_path):
        origin = f"{name_or_path} of huggingface.co"
        return _open_folder(hub.fetch(name_or_path, key), origin, key, allow_missing_weights)
    raise UserError(f"{key}: there is no folder or file {path}; correct the path")


def _open_folder(folder: Path, origin: str, key: str, allow_missing: bool) -> Pretrained:
    if _is_own_folder(folder):
        return _open_tensorflow(find_checkpoint(folder, key), key, allow_missing)
    weights = weights_file(folder)
    if weights is not None:
        return _open_hugging_face(weights, origin, key, allow_missing)
    prefix = newest_tensorflow(folder)
    if prefix is not None:
        return _open_tensorflow(Checkpoint(prefix, None), key, allow_missing)
    looked_for = ", ".join(["step-… (checkpoints of this project)", *(kind.name for kind in KINDS), "*.ckpt.index"])
    raise UserError(f"{key}: {folder} holds no weights (looked for {looked_for}); name another folder")


def _is_own_folder(folder: Path) -> bool:
    """Whether a folder is a checkpoint of this project, a folder of them or a run's."""
    inner = folder / "checkpoints"
    if (folder / DESCRIPTION).is_file() or step_folders(folder) or step_folders(inner):
        return True
    return inner.is_dir() and weights_file(folder) is None


def _open_hugging_face(file: Path, origin: str, key: str, allow_missing: bool) -> Pretrained:
    return _of_others(open_file(file, key), file.parent, origin, key, allow_missing)


def _open_tensorflow(checkpoint: Checkpoint, key: str, allow_missing: bool) -> Pretrained:
    """This project's checkpoint, or Google's."""
    if checkpoint.facts is None:
        arrays = without_slots(open_tensorflow(checkpoint.weights))
        weights = renamed(arrays, from_google)
        if WORD_TABLE in weights:
            return _of_others(weights, checkpoint.folder, str(checkpoint.weights), key, allow_missing)
    own = open_own(checkpoint.weights, key)
    facts = checkpoint.facts or {"task": own.task}
    trained = {name: value for name, value in facts.get("architecture", {}).items() if name not in _OF_THE_RUN}
    return Pretrained(
        origin=str(checkpoint.folder if checkpoint.facts else checkpoint.weights),
        weights=own.weights,
        architecture={**sizes_of(own), **trained},
        vocabulary=checkpoint.vocabulary,
        lower_case=facts.get("lower_case"),
        stand_ins=stand_ins(own.weights, trained.get("layer_norm_eps", 0.0)),
        unknown=own.unknown,
        settings=facts,
        own=True,
        folder=checkpoint.folder,
        key=key,
        allow_missing=allow_missing,
    )


# Says how to compute, or what a run did to its model; the weights are whole matrices here.
_OF_THE_RUN = (
    "embedding_serialization_factor", "sparsity_ratio", "sparsity_block_size", "sparse_parts", "sparsity_kernel"
)  # fmt: skip


def _of_others(weights: Weights, folder: Path, origin: str, key: str, allow_missing: bool) -> Pretrained:
    """Weights of a complete BERT with its settings beside it."""
    config: Dict[str, Any] = read_config(folder, key)
    return Pretrained(
        origin=origin,
        weights=with_named_head(weights, config.get("architectures") or ()),
        architecture=architecture_of_config(config, key),
        vocabulary=vocabulary_of(folder),
        lower_case=lower_case_of(folder, key),
        settings=config,
        folder=folder,
        key=key,
        allow_missing=allow_missing,
    )
