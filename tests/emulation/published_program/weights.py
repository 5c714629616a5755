"""The weights of Graphcore's model in the names and shapes of Hugging Face's PyTorch classes.

Their variables have names that repeat; their order is that of the layers, and depends on the options of the config.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

CLASSES = {
    "pretraining": "BertForPreTraining",
    "squad": "BertForQuestionAnswering",
    "classification": "BertForSequenceClassification",
}
MERGED = "attention.self."  # of a matrix that is three of Hugging Face's
QKV = ("query", "key", "value")
KINDS = {"weight": ("kernel", "gamma", "weight", "embeddings"), "bias": ("bias", "beta")}  # what both call their parts


def both(name: str) -> Iterator[str]:
    yield from (f"{name}.weight", f"{name}.bias")


def names_in_order(config: Mapping[str, Any], task: str) -> Iterator[str]:
    """Yield Hugging Face's name for each of their variables; the merged matrix ends in ``attention.self.``."""
    yield from (f"bert.embeddings.{part}_embeddings.weight" for part in ("word", "token_type", "position"))
    yield from both("bert.embeddings.LayerNorm")
    for number in range(config["bert_config"]["num_hidden_layers"]):
        yield from layer_names(config, f"bert.encoder.layer.{number}.")
    if task != "squad":
        yield from both("bert.pooler.dense")
    if task == "pretraining":
        if config.get("use_prediction_bias", True):
            yield "cls.predictions.bias"
        if config.get("use_cls_layer", False):
            yield from both("cls.predictions.transform.dense")
            yield from both("cls.predictions.transform.LayerNorm")
    yield from both({"pretraining": "cls.seq_relationship", "squad": "qa_outputs"}.get(task, "classifier"))


def layer_names(config: Mapping[str, Any], layer: str) -> Iterator[str]:
    for part in QKV if config.get("use_qkv_split", False) else ():
        yield f"{layer}attention.self.{part}.weight"
        if config.get("use_qkv_bias", False):
            yield f"{layer}attention.self.{part}.bias"
    if not config.get("use_qkv_split", False):
        yield layer + MERGED
    dense, norm = both(f"{layer}attention.output.dense"), both(f"{layer}attention.output.LayerNorm")
    if config.get("use_projection_bias", False):
        yield from (*dense, *norm)
    else:
        yield from (*norm, next(dense))
    for part in ("intermediate.dense", "output.dense", "output.LayerNorm"):
        yield from both(layer + part)


def as_hugging_face(arrays: Mapping[str, np.ndarray], config: Mapping[str, Any], task: str) -> dict[str, np.ndarray]:
    """Return their variables (by numbered names, in order) as float32 arrays by Hugging Face's names."""
    names, found = list(names_in_order(config, task)), {}
    assert len(names) == len(arrays), f"{len(arrays)} variables, {len(names)} expected"
    for name, (theirs, value) in zip(names, sorted(arrays.items())):
        kind = theirs.rpartition("/")[2].rpartition(" ")[2].partition(":")[0]
        assert name.endswith(MERGED) or kind in KINDS[name.rpartition(".")[2]], f"{theirs} is not {name}"
        parts = {name: value}
        if name.endswith(MERGED):
            parts = {f"{name}{part}.weight": third for part, third in zip(QKV, np.split(value, 3, axis=-1))}
        for part, array in parts.items():
            dense = array.ndim == 2 and "_embeddings" not in part
            found[part] = np.ascontiguousarray(array.T if dense else array, dtype=np.float32)
    return found


def write_folder(folder: Path, weights: Mapping[str, np.ndarray], config: Mapping[str, Any], task: str) -> None:
    """Write a Hugging Face folder; what the model does not use (biases, the head's transform) is neutral."""
    sizes = config["bert_config"]
    width, complete = sizes["hidden_size"], dict(weights)
    for number in range(sizes["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{number}.attention"
        for name in (*(f"{layer}.self.{part}" for part in QKV), f"{layer}.output.dense"):
            complete.setdefault(f"{name}.bias", np.zeros(width, np.float32))
    if task == "pretraining":
        transform = "cls.predictions.transform"
        neutral = {f"{transform}.dense.weight": np.eye(width), f"{transform}.LayerNorm.weight": np.ones(width)}
        neutral.update((f"{transform}.{part}.bias", np.zeros(width)) for part in ("dense", "LayerNorm"))
        neutral["cls.predictions.bias"] = np.zeros(sizes["vocab_size"])
        complete = {**{name: value.astype(np.float32) for name, value in neutral.items()}, **complete}
    folder.mkdir(exist_ok=True)
    save_file(complete, folder / "model.safetensors", metadata={"format": "pt"})
    described = {**sizes, "model_type": "bert", "architectures": [CLASSES[task]], "hidden_act": "gelu_new"}
    (folder / "config.json").write_text(json.dumps(described))
