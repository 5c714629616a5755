"""Reads the checkpoints of Graphcore's published program, whose configs this project follows.

Its ``N.ckpt`` is what Keras' ``save_weights`` makes of a model: layers have numbers, ``layer_with_weights-1``, in the
model's order, and their parts the names of attributes, some with a running number. Each variable's moments are beside
it, ``…/.OPTIMIZER_SLOT/optimizer/m`` and ``v``: running means of the gradient and of its square, neither scaled by the
loss scale nor corrected for their bias, as they are here.
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from checkpoints.pretrained.native_checkpoint import VARIABLE, NativeWeights, parts_by_name, variables
from checkpoints.pretrained.pretrained import OptimizerState
from checkpoints.pretrained.weights import CLASSIFIER, SPAN_HEAD, Name, Weights, from_tensorflow
from model.tasks import CLASSIFICATION, PRETRAINING, SQUAD

ACTIVATION = "gelu_new"  # the program's, unless it started from a model of Hugging Face with another one

_LAYER = re.compile(r"layer_with_weights-(\d+)/(.+)")
_EMBEDDINGS = re.compile(r"layer_with_weights-\d+/token_type_embeddings" + re.escape(VARIABLE))
_MOMENT = re.compile(r"(.+)/\.OPTIMIZER_SLOT/optimizer/([mv])")
_UPDATES = "optimizer/iter"
_ATTENTION = "attention/"

# Patterns of a name in its layer, and Hugging Face's TensorFlow name; QKV stands for each of the three.
_QKV = ("query", "key", "value")
_IN_EMBEDDINGS = (
    (r"weight", "bert/embeddings/word_embeddings/weight"),
    (r"token_type_embeddings", "bert/embeddings/token_type_embeddings/embeddings"),
    (r"embeddings", "bert/embeddings/position_embeddings/embeddings"),
    (r"(LayerNorm/\w+)", r"bert/embeddings/\1"),
)
_IN_ENCODER_LAYER = (
    (r"attention/\w+/qkv_weight", "attention/self/QKV/kernel"),
    (r"attention/\w+/((?:query|key|value)/\w+)", r"attention/self/\1"),
    (r"attention/\w+/((?:dense|LayerNorm)/\w+)", r"attention/output/\1"),
    (r"bert_output/((?:dense|LayerNorm)/\w+)", r"output/\1"),
    (r"(intermediate/dense/\w+)", r"\1"),
)
_IN_HEADS = (
    (r"(dense/\w+)", r"bert/pooler/\1"),
    (r"(seq_relationship/\w+)", r"cls/\1"),
    (r"\w+/(bias|transform/\w+/\w+)", r"cls/predictions/\1"),
    (r"(kernel|bias)", r"HEAD/\1"),
)
_POOLER = "bert.pooler.dense.weight"


def published_checkpoint(
    floats: Weights, integers: Weights
) -> Optional[Tuple[NativeWeights, Optional[OptimizerState]]]:
    """Return the weights, and the optimizer's state if it was saved; None if the arrays are another program's."""
    if not any(map(_EMBEDDINGS.fullmatch, floats)):
        return None
    kinds: Dict[str, Weights] = {"": {}, "m": {}, "v": {}}
    for name, array in variables(floats).items():
        moment = _MOMENT.fullmatch(name)
        kinds[moment.group(2) if moment else ""][moment.group(1) if moment else name] = array
    names = _hugging_face_names(list(kinds[""]))
    weights, first, second = (parts_by_name(kind, names) for kind in kinds.values())
    unknown = [name for name in kinds[""] if name not in names and _LAYER.match(name)]
    task = PRETRAINING
    if f"{SPAN_HEAD}.weight" in weights or f"{CLASSIFIER}.weight" in weights:
        task = CLASSIFICATION if f"{CLASSIFIER}.weight" in weights else SQUAD
    merged = any(len(parts) > 1 for parts in names.values())
    updates = integers.get(_UPDATES + VARIABLE)
    state = None
    if updates is not None and first and first.keys() == second.keys():
        state = OptimizerState(int(np.asarray(updates.read())), first, second)
    return NativeWeights(weights, unknown, task, merged), state


def _hugging_face_names(paths: Sequence[str]) -> Dict[str, List[Name]]:
    """Return PyTorch's names of each path, several for the joint matrix; paths of no known weight are left out."""
    places = {
        path: (int(match.group(1)), match.group(2)) for path in paths for match in [_LAYER.fullmatch(path)] if match
    }
    encoder = sorted({number for number, rest in places.values() if rest.startswith(_ATTENTION)})
    first = {number for number, rest in places.values() if rest == "token_type_embeddings"}
    names: Dict[str, List[Name]] = {}
    for path, (number, rest) in places.items():
        if number in first:
            found = _translated(rest, _IN_EMBEDDINGS)
        elif number in encoder:
            found = _translated(rest, _IN_ENCODER_LAYER)
            found = found and f"bert/encoder/layer_._{encoder.index(number)}/{found}"
        else:
            found = _translated(rest, _IN_HEADS)
        if found is not None:
            parts = [found.replace("QKV", part) for part in _QKV] if "QKV" in found else [found]
            names[path] = [from_tensorflow(part) for part in parts]
    has_pooler = any(name.name == _POOLER for parts in names.values() for name in parts)
    head = CLASSIFIER if has_pooler else SPAN_HEAD  # only the model for spans has no pooler
    return {
        path: [part._replace(name=part.name.replace("HEAD", head)) for part in parts] for path, parts in names.items()
    }


def _translated(rest: str, rules: Sequence[Tuple[str, str]]) -> Optional[str]:
    for pattern, name in rules:
        match = re.fullmatch(pattern, rest)
        if match is not None:
            return match.expand(name)
    return None
