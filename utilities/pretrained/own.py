"""This project's checkpoints by PyTorch's names.

Nothing here says which weight is which: the recipe of the conversion does. A sketch of the model, one layer of a few
numbers, is converted and saved as training saves; that gives the names in the file, and the conversion's routes give
what they were made of.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from execution.software.platform import SoftwarePlatform
from keras_extensions.backend import keras, tf
from keras_extensions.conversion import Route
from model.architecture import (
    CLASSIFICATION,
    GLUE_HEAD,
    HEADS,
    HID,
    PRETRAINING,
    QA_HEAD,
    SQUAD,
    Architecture,
    expected_blocks,
)
from model.bert import pretraining_shapes
from model.blocks import Block, block_inputs, run_blocks
from model.conversion import convert_classification, convert_pretraining, convert_squad
from model.huggingface import untrained_bert, untrained_classifier, untrained_squad
from model.unconverted import unconverted_classification, unconverted_pretraining, unconverted_squad
from utilities.checkpoints.state import named
from utilities.errors import UserError
from utilities.pretrained.completion import TRANSFORM
from utilities.pretrained.formats.tensorflow1 import open_tensorflow
from utilities.pretrained.names import WORD_BIAS, WORD_TABLE, Name, from_tensorflow, number_of_layers
from utilities.pretrained.weights import Weight, Weights

_TASKS = {HEADS: PRETRAINING, QA_HEAD: SQUAD, GLUE_HEAD: CLASSIFICATION}
_ENDING = "/.ATTRIBUTES/VARIABLE_VALUE"  # TensorFlow's, of every variable in a checkpoint
_SIZES = {
    "hidden_size": 8, "vocab_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8,
    "max_position_embeddings": 8,
}  # fmt: skip
_BIASES = {"use_projection_bias": True, "use_cls_layer": True, "use_prediction_bias": True}
# Between them these sketches have every name that a checkpoint can hold; None: layers unconverted.
_SKETCHES: Tuple[Optional[Dict[str, bool]], ...] = (
    {**_BIASES, "use_qkv_split": False, "use_qkv_bias": False},
    {**_BIASES, "use_qkv_split": True, "use_qkv_bias": True},
    None,
)


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
    arrays = open_tensorflow(prefix)
    saved = {name[: -len(_ENDING)]: weight for name, weight in arrays.items() if name.endswith(_ENDING)}
    task = next((task for block, task in _TASKS.items() if any(_block(name) == block for name in saved)), None)
    if task is None:
        raise UserError(f"{key}: {prefix} is a TensorFlow checkpoint, but of no model of this project; name another")
    table: Dict[str, List[Name]] = {}
    for options in _SKETCHES:
        table.update(saved_names(task, options))
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


def saved_names(task: str, options: Optional[Dict[str, bool]]) -> Dict[str, List[Name]]:
    """Name in the checkpoint of a one-layer model → PyTorch's names of what lies side by side in that weight.

    Args:
        task: of the model.
        options: of its architecture; None for Hugging Face's own layers.
    """
    source, blocks, routes = _sketch(task, options)
    origins = {id(variable): [variable] for variable in source.weights}
    origins.update({id(route.target): route.sources for route in routes})
    return {
        name: [_name_of(origin) for origin in origins[id(variable)]]
        for name, variable in _names_in_checkpoint(blocks).items()
    }


def _sketch(task: str, options: Optional[Dict[str, bool]]) -> Tuple[keras.Model, List[Block], List[Route]]:
    """A small source model, the blocks made of it, and the ways of its weights (none if it is not converted)."""
    a = Architecture(**_SIZES, **(options or {}))
    platform = SoftwarePlatform(seed=0, xla=False, recompute=False)
    tail = expected_blocks(task, num_layers=1)[2:]
    if task == PRETRAINING:
        source = untrained_bert(a, seed=0)
        converted = convert_pretraining(source, a, platform) if options else None
        blocks = converted[0] if converted else unconverted_pretraining(source, platform)
    elif task == SQUAD:
        source = untrained_squad(a, seed=0)
        converted = convert_squad(source, a, platform, tail) if options else None
        blocks = converted[0] if converted else unconverted_squad(source, platform, tail)
    else:
        source = untrained_classifier(a, classes=2, seed=0)
        converted = convert_classification(source, a, platform, tail) if options else None
        blocks = converted[0] if converted else unconverted_classification(source, platform, tail)
    shapes = pretraining_shapes(sequence_length=4, masked_positions=2)
    run_blocks(blocks, {name: tf.zeros((1, *shapes[name]), tf.int32) for name in block_inputs(blocks)})
    return source, blocks, converted[1].routes() if converted else []


def _names_in_checkpoint(blocks: List[Block]) -> Dict[str, tf.Variable]:
    """What training's checkpoints call each variable of ``blocks``.

    Every variable is set to a number of its own; saved, the numbers tell.
    """
    variables = list({id(variable): variable for block in blocks for variable in block.weights}.values())
    for number, variable in enumerate(variables):
        variable.assign(tf.fill(variable.shape, float(number)))
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(Path(folder) / "sketch")
        tf.train.Checkpoint(**named(blocks)).write(prefix)
        reader = tf.train.load_checkpoint(prefix)
        names = [name for name in reader.get_variable_to_shape_map() if name.endswith(_ENDING)]
        return {name[: -len(_ENDING)]: variables[int(reader.get_tensor(name).flat[0])] for name in names}


def _name_of(variable: tf.Variable) -> Name:
    name = from_tensorflow(variable.name)
    assert name is not None
    return name


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
