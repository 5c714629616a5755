"""Reads a checkpoint of this project as the weights of a complete Hugging Face BERT.

Names: no table maps saved names to PyTorch's names. Instead, a tiny model is built and converted like a real one, and
its conversion shows which weights each saved weight was made of.

Completion: biases that the model was trained without become zeros. Hugging Face's masked-LM head always has a
transform, norm(gelu(dense(x))), whose weights can be chosen to return its input. That input is the output of the last
LayerNorm, x = γ·z + β, with z of mean 0 and variance 1 in each token. The dense layer gives s·(z + c). With c ≥ √H no
entry of z outweighs c, and s is so large that gelu changes nothing there. The norm removes c as the mean and s as the
deviation, and applies γ and β. What remains of c is its rounding in float32: of 15 million logits of up to 5, the worst
is off by 3e-6 at H = 128, 1e-5 at 768 and 2e-5 at 1024, where float32 rounds the product itself to 2e-6 and 5e-6.

H hidden size
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from checkpoints.pretrained.weights import (
    POSITION_TABLE,
    TRANSFORM,
    WORD_BIAS,
    WORD_TABLE,
    Name,
    Weight,
    Weights,
    from_tensorflow,
    is_encoder_weight,
    number_of_layers,
)
from checkpoints.state import by_name, variable_names
from execution.software.platform import SoftwarePlatform
from model.architecture import EMB, HID, Architecture
from model.blocks import build_weights
from model.conversion import convert
from model.huggingface import build_hf_model
from model.layers import AS_DENSE
from model.tasks import SENTENCE_EMBEDDING, SQUAD, TASKS
from utilities.errors import UserError

VARIABLE = "/.ATTRIBUTES/VARIABLE_VALUE"  # TensorFlow appends this to the name of every variable in a checkpoint
_MODEL_GARDEN = "layer_with_weights-"  # in the names of Keras models that tensorflow/models saves


class NativeWeights(NamedTuple):
    """The content of a checkpoint; ``unknown`` are names in the file that belong to no model of this version."""

    weights: Weights
    unknown: List[str]
    task: str
    merged: bool

    def sizes(self) -> Dict[str, Any]:
        """Return the fields of :class:`model.architecture.Architecture` that follow from the weights."""
        weights = self.weights
        shapes = {
            "vocab_size": (WORD_TABLE, 0),
            "hidden_size": (WORD_TABLE, 1),
            "max_position_embeddings": (POSITION_TABLE, 0),
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
            "use_qkv_split": not self.merged,
            **{size: weights[name].shape[axis] for size, (name, axis) in shapes.items() if name in weights},
            **{option: name in weights for option, name in options.items()},
        }


def native_weights(floats: Weights, integers: Weights, prefix: Path, key: str) -> NativeWeights:
    """Return the weights of a TensorFlow checkpoint that training wrote, given its arrays by their path."""
    saved = variables(floats)
    for as_dense in AS_DENSE:
        saved = as_dense(saved, variables(integers))
    blocks = {name.split("/", 1)[0] for name in saved}
    without_head = SENTENCE_EMBEDDING if EMB in blocks else None  # that task's head has no weights
    task = next((task for task, model in TASKS.items() if model.head in blocks), without_head)
    if task is None:
        if any(_MODEL_GARDEN in name for name in saved):
            raise UserError(
                f"{key}: {prefix} is a checkpoint of tensorflow/models (TensorFlow 2), whose names are not read;"
                " convert it with Transformers' convert_bert_original_tf2_checkpoint_to_pytorch.py"
            )
        raise UserError(
            f"{key}: {prefix} is a TensorFlow checkpoint, but not of a BERT of this project, Google or Graphcore's"
            " program; name another"
        )
    origins = origins_of_saved(task, list(saved))
    unknown, merged = [name for name in saved if name not in origins], any(len(parts) > 1 for parts in origins.values())
    return NativeWeights(parts_by_name(saved, origins), unknown, task, merged)


def origins_of_saved(task: str, saved: Sequence[str]) -> Dict[str, List[Name]]:
    """Return PyTorch's names of what each saved weight was made of; names of no weight of the task are left out.

    Saved names are such as ``hid_0/layer/attention/qkv/kernel``.
    """
    origins: Dict[str, Sequence[Name]] = {}
    for variant in _VARIANTS:
        origins.update(_map_saved_names(task, variant))
        if all(_in_first_layer(name) in origins for name in saved):
            break
    return {
        name: [part._replace(name=_move_to_layer(name, part.name)) for part in origins[_in_first_layer(name)]]
        for name in saved
        if _in_first_layer(name) in origins
    }


def variables(arrays: Weights) -> Weights:
    """Return the arrays of variables by their path in the object graph."""
    return {name[: -len(VARIABLE)]: weight for name, weight in arrays.items() if name.endswith(VARIABLE)}


def _in_first_layer(name: str) -> str:
    return re.sub(rf"^{HID}_\d+/", f"{HID}_0/", name)


def _move_to_layer(saved: str, name: str) -> str:
    """Translate PyTorch's ``name`` of a weight in the first layer to the layer of a saved name."""
    layer = re.match(rf"{HID}_(\d+)/", saved)
    return name.replace(".layer.0.", f".layer.{layer.group(1)}.") if layer else name


def parts_by_name(arrays: Weights, names: Mapping[str, Sequence[Name]]) -> Weights:
    """Rename arrays to PyTorch's names; with several names, each is that of an equal part along the last axis."""
    return {
        part.name: _part(arrays[name], index, len(parts), part.transposed)
        for name, parts in names.items()
        if name in arrays
        for index, part in enumerate(parts)
    }


def _part(weight: Weight, index: int, parts: int, transposed: bool) -> Weight:
    width = weight.shape[-1] // parts
    start = index * width
    part = Weight((*weight.shape[:-1], width), lambda: weight.read()[..., start : start + width], weight.location)
    return part.transposed() if transposed else part


# The tiny models, which show the names of a model's saved weights and what they were made of.

_TINY = Architecture(
    hidden_size=8,
    vocab_size=8,
    num_attention_heads=2,
    num_hidden_layers=1,
    intermediate_size=8,
    max_position_embeddings=8,
    use_projection_bias=True,
    use_cls_layer=True,
    use_prediction_bias=True,
)
# Together these have every name that a checkpoint can contain; None: Hugging Face's own layers, not replaced.
_VARIANTS: Tuple[Optional[Architecture], ...] = (
    _TINY,
    dataclasses.replace(_TINY, use_qkv_split=True, use_qkv_bias=True),
    None,
)


@functools.lru_cache(maxsize=None)
def _map_saved_names(task: str, variant: Optional[Architecture]) -> Mapping[str, Sequence[Name]]:
    """Return, for each saved name, the PyTorch names of the weights that were concatenated in that weight."""
    a = variant or _TINY
    platform = SoftwarePlatform(seed=0, xla=False, recompute=False)
    source = build_hf_model(task, a, seed=0)
    blocks, conversion = convert(task, source, a, platform, replace_layers=variant is not None)
    build_weights(blocks, (), platform)
    origins = {id(variable): [variable] for variable in source.weights}
    if conversion is not None:
        origins.update({id(mapping.target): mapping.sources for mapping in conversion.resolved_mappings()})
    weights = [variable for block in blocks for variable in block.weights]
    return {
        name: [from_tensorflow(origin.name) for origin in origins[id(variable)]]
        for name, variable in zip(variable_names(weights, by_name(blocks)), weights)
    }


def encoder_names(layers: int) -> Set[str]:
    """Return PyTorch's names of the weights that a BERT with this number of layers needs."""
    source = build_hf_model(SQUAD, _TINY, seed=0)
    names = [from_tensorflow(variable.name).name for variable in source.weights]
    first = [name for name in names if is_encoder_weight(name)]
    return {name.replace(".layer.0.", f".layer.{number}.") for name in first for number in range(layers)}


# Weights of a complete BERT that the trained model may lack; see the top of the file.

_GELU_IS_IDENTITY = 6.0  # from here on gelu(x) = x in float32, exact and tanh
_IDENTITY_FROM_HERE = ("gelu", "gelu_new", "relu")
_STRETCH = 64.0  # s; a power of two, because multiplying by it does not round
_SMALLEST_SCALE = 1e-6  # smallest γ from which z can be recovered


def neutral_weights(weights: Weights, layer_norm_eps: float, has_masked_lm: bool, hidden_act: str = "gelu") -> Weights:
    """Return weights that complete those of a model of this project without changing what it computes.

    The transform is not among them if γ is too small to divide by, or if the activation never returns its argument.
    """
    if WORD_TABLE not in weights:
        return {}
    hidden = weights[WORD_TABLE].shape[1]
    biases = {WORD_BIAS: weights[WORD_TABLE].shape[0]} if has_masked_lm else {}
    for number in range(number_of_layers(weights)):
        attention = f"bert.encoder.layer.{number}.attention"
        for dense in ("self.query", "self.key", "self.value", "output.dense"):
            biases[f"{attention}.{dense}.bias"] = hidden
    neutral = {name: _zeros(size, name) for name, size in biases.items() if name not in weights}
    if has_masked_lm and f"{TRANSFORM}.dense.weight" not in weights and hidden_act in _IDENTITY_FROM_HERE:
        neutral.update(_identity_transform(weights, layer_norm_eps))
    return neutral


def _zeros(size: int, name: str) -> Weight:
    return Weight((size,), lambda: np.zeros(size, np.float32), f"zeros for {name}")


def _identity_transform(weights: Weights, epsilon: float) -> Weights:
    norm = f"bert.encoder.layer.{number_of_layers(weights) - 1}.output.LayerNorm"
    if f"{norm}.weight" not in weights or f"{norm}.bias" not in weights:
        return {}
    scale, shift = (weights[f"{norm}.{part}"].value().astype(np.float64) for part in ("weight", "bias"))  # γ, β: (H,)
    if np.abs(scale).min() < _SMALLEST_SCALE:
        return {}
    hidden = len(scale)
    lift = math.ceil(math.sqrt(hidden) + _GELU_IS_IDENTITY / _STRETCH)  # c, an integer, which is exact in float32
    parts: Dict[str, Tuple[Tuple[int, ...], Callable[[], np.ndarray]]] = {
        "dense.weight": ((hidden, hidden), lambda: np.diag(_STRETCH / scale)),
        "dense.bias": ((hidden,), lambda: _STRETCH * (lift - shift / scale)),
        "LayerNorm.weight": ((hidden,), lambda: scale * math.sqrt(1.0 + epsilon / _STRETCH**2)),
        "LayerNorm.bias": ((hidden,), lambda: shift),
    }
    return {
        f"{TRANSFORM}.{name}": Weight(shape, make, f"a layer that changes nothing, for {TRANSFORM}.{name}")
        for name, (shape, make) in parts.items()
    }
