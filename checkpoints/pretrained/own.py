"""This project's checkpoints by PyTorch's names.

Nothing here says which weight is which; the recipe of the conversion does, by way of ``sketch.py``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

import numpy as np

from checkpoints.formats.tensorflow1 import open_tensorflow
from checkpoints.pretrained.completion import TRANSFORM
from checkpoints.pretrained.names import WORD_BIAS, WORD_TABLE, Name, number_of_layers
from checkpoints.pretrained.sketch import SKETCHES, VARIABLE, saved_names
from checkpoints.pretrained.sparse import with_whole_matrices
from checkpoints.pretrained.weights import Weight, Weights
from model.architecture import HID, TASKS
from utilities.errors import UserError


class OwnWeights(NamedTuple):
    """A checkpoint's content.

    Attributes:
        weights: by PyTorch's names.
        unknown: names in the file that belong to no model of this version.
        task: the task that was trained.
        merged: whether query, key and value were one matrix.
    """

    weights: Weights
    unknown: List[str]
    task: str
    merged: bool


def open_own(prefix: Path, key: str) -> OwnWeights:
    """Read a TensorFlow checkpoint that training wrote.

    Args:
        prefix: its path without ``.index``.
        key: config key or flag that named it.

    Raises:
        UserError: it cannot be read, or is of something else.
    """
    saved, numbers = (_saved(open_tensorflow(prefix, whole_numbers)) for whole_numbers in (False, True))
    saved = with_whole_matrices(saved, numbers)
    blocks = {_block(name) for name in saved}
    task = next((task for task, model in TASKS.items() if model.head in blocks), None)
    if task is None:
        raise UserError(f"{key}: {prefix} is a TensorFlow checkpoint, but of no model of this project; name another")
    table: Dict[str, Sequence[Name]] = {}
    for sketch in SKETCHES:
        table.update(saved_names(task, sketch))
        if all(_of_first_layer(name) in table for name in saved):
            break
    weights: Weights = {}
    merged = False
    for name, weight in saved.items():
        parts = table.get(_of_first_layer(name), [])
        merged = merged or len(parts) > 1
        for place, part in enumerate(parts):
            weights[_of_layer(part.name, name)] = _part(weight, place, len(parts), part.transposed)
    unknown = [name for name in saved if _of_first_layer(name) not in table]
    return OwnWeights(weights, unknown, task, merged)


def sizes_of(own: OwnWeights) -> Dict[str, Any]:
    """Fields of :class:`model.architecture.Architecture` that the weights themselves tell."""
    weights = own.weights
    shapes = {
        "vocab_size": (WORD_TABLE, 0),
        "hidden_size": (WORD_TABLE, 1),
        "max_position_embeddings": ("bert.embeddings.position_embeddings.weight", 0),
        "type_vocab_size": ("bert.embeddings.token_type_embeddings.weight", 0),
        "intermediate_size": ("bert.encoder.layer.0.intermediate.dense.weight", 0),
    }
    options = {
        "use_qkv_bias": "bert.encoder.layer.0.attention.self.query.bias",
        "use_projection_bias": "bert.encoder.layer.0.attention.output.dense.bias",
        "use_cls_layer": f"{TRANSFORM}.dense.weight",
        "use_prediction_bias": WORD_BIAS,
    }
    return {
        "num_hidden_layers": number_of_layers(weights),
        "use_qkv_split": not own.merged,
        **{size: weights[name].shape[axis] for size, (name, axis) in shapes.items() if name in weights},
        **{option: name in weights for option, name in options.items()},
    }


def _saved(arrays: Weights) -> Weights:
    """Variables by their own names."""
    return {name[: -len(VARIABLE)]: weight for name, weight in arrays.items() if name.endswith(VARIABLE)}


def _block(name: str) -> str:
    return name.split("/", 1)[0]


def _of_first_layer(name: str) -> str:
    """The name of the same weight in the first encoder layer."""
    return re.sub(rf"^{HID}_\d+/", f"{HID}_0/", name)


def _of_layer(name: str, saved: str) -> str:
    """PyTorch's ``name``, of the first layer, for the layer that a name in the checkpoint belongs to."""
    layer = re.match(rf"{HID}_(\d+)/", saved)
    return name.replace(".layer.0.", f".layer.{layer.group(1)}.") if layer else name


def _part(weight: Weight, place: int, parts: int, transposed: bool) -> Weight:
    """One of ``parts`` equal parts of a weight along its last axis."""
    width = weight.shape[-1] // parts
    start = place * width

    def read() -> np.ndarray:
        return weight.read()[..., start : start + width]

    part = Weight((*weight.shape[:-1], width), read, weight.place)
    return part.transposed() if transposed else part
