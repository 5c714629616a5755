"""Writes checkpoints like Graphcore's published program, with Keras' own object graph and an optimizer of that time.

The names are written out here, as a listing of a checkpoint shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tf_keras

from keras_extensions.backend import tf

Arrays = dict[str, np.ndarray]
QKV = ("query", "key", "value")


class Options(NamedTuple):
    """What a model has: a joint matrix of query, key and value, and the parts that are optional."""

    merged: bool = True
    biases: bool = False
    transform: bool = False


class Sizes(NamedTuple):
    layers: int
    hidden: int = 16
    intermediate: int = 32
    words: int = 96
    positions: int = 24


def random_weights(task: str, sizes: Sizes, options: Options, seed: int = 0) -> Arrays:
    """Return random float16 weights of a model by PyTorch's names."""
    hidden, inner = sizes.hidden, sizes.intermediate
    shapes: dict[str, tuple[int, ...]] = {
        "bert.embeddings.word_embeddings.weight": (sizes.words, hidden),
        "bert.embeddings.token_type_embeddings.weight": (2, hidden),
        "bert.embeddings.position_embeddings.weight": (sizes.positions, hidden),
        "bert.embeddings.LayerNorm.weight": (hidden,),
        "bert.embeddings.LayerNorm.bias": (hidden,),
    }

    def dense(name: str, inputs: int, outputs: int, bias: bool = True) -> None:
        shapes[f"{name}.weight"] = (outputs, inputs)
        if bias:
            shapes[f"{name}.bias"] = (outputs,)

    for number in range(sizes.layers):
        layer = f"bert.encoder.layer.{number}"
        for part in QKV:
            dense(f"{layer}.attention.self.{part}", hidden, hidden, options.biases)
        dense(f"{layer}.attention.output.dense", hidden, hidden, options.biases)
        dense(f"{layer}.intermediate.dense", hidden, inner)
        dense(f"{layer}.output.dense", inner, hidden)
        for norm in ("attention.output", "output"):
            shapes[f"{layer}.{norm}.LayerNorm.weight"] = shapes[f"{layer}.{norm}.LayerNorm.bias"] = (hidden,)
    if task != "squad":
        dense("bert.pooler.dense", hidden, hidden)
    if task == "pretraining":
        shapes["cls.predictions.bias"] = (sizes.words,)
        dense("cls.seq_relationship", hidden, 2)
    else:
        dense("qa_outputs" if task == "squad" else "classifier", hidden, 2)
    if options.transform:
        dense("cls.predictions.transform.dense", hidden, hidden)
        for part in ("weight", "bias"):
            shapes[f"cls.predictions.transform.LayerNorm.{part}"] = (hidden,)
    random = np.random.default_rng(seed)
    values = {name: random.normal(0, 0.1, shape) for name, shape in shapes.items()}
    norms = {name: 1.0 for name in values if name.endswith("LayerNorm.weight")}
    return {name: (value + norms.get(name, 0.0)).astype(np.float16) for name, value in values.items()}


def random_moments(arrays: Arrays, seed: int = 0) -> tuple[Arrays, Arrays]:
    """Return random moments of weights, in float32; the second ones are at least 0.1."""
    random = np.random.default_rng(seed)
    first = {name: random.normal(0, 1, value.shape).astype(np.float32) for name, value in arrays.items()}
    return first, {name: np.square(value) + np.float32(0.1) for name, value in first.items()}


def graph_paths(task: str, arrays: Arrays, layers: int, options: Options) -> dict[str, np.ndarray]:
    """Return arrays of PyTorch's names by their paths in the program's object graph, dense kernels as (in, out)."""
    embeddings, head = "bert.embeddings", layers + 1
    paths = {
        "layer_with_weights-0/weight": arrays[f"{embeddings}.word_embeddings.weight"],
        "layer_with_weights-0/token_type_embeddings": arrays[f"{embeddings}.token_type_embeddings.weight"],
        "layer_with_weights-0/embeddings": arrays[f"{embeddings}.position_embeddings.weight"],
    }

    def norm(path: str, name: str) -> None:
        paths[f"{path}/gamma"], paths[f"{path}/beta"] = arrays[f"{name}.weight"], arrays[f"{name}.bias"]

    def dense(path: str, name: str) -> None:
        paths[f"{path}/kernel"] = arrays[f"{name}.weight"].T
        if f"{name}.bias" in arrays:
            paths[f"{path}/bias"] = arrays[f"{name}.bias"]

    norm("layer_with_weights-0/LayerNorm", f"{embeddings}.LayerNorm")
    for number in range(layers):
        layer, path = f"bert.encoder.layer.{number}", f"layer_with_weights-{number + 1}"
        end = f"_{number}" if number else ""  # Keras counts the layers of a class
        own, output = (f"{path}/attention/ipu_tf_bert_self_{part}{end}" for part in ("attention", "output"))
        if options.merged:
            matrices = [arrays[f"{layer}.attention.self.{part}.weight"].T for part in QKV]
            paths[f"{own}/qkv_weight"] = np.concatenate(matrices, axis=-1)
        else:
            for part in QKV:
                dense(f"{own}/{part}", f"{layer}.attention.self.{part}")
        dense(f"{output}/dense", f"{layer}.attention.output.dense")
        norm(f"{output}/LayerNorm", f"{layer}.attention.output.LayerNorm")
        dense(f"{path}/intermediate/dense", f"{layer}.intermediate.dense")
        dense(f"{path}/bert_output/dense", f"{layer}.output.dense")
        norm(f"{path}/bert_output/LayerNorm", f"{layer}.output.LayerNorm")
    if task != "squad":
        dense(f"layer_with_weights-{head}/dense", "bert.pooler.dense")
        head += 1
    if task != "pretraining":
        dense(f"layer_with_weights-{head}", "qa_outputs" if task == "squad" else "classifier")
        return paths
    words = f"layer_with_weights-{head}/ipu_tf_bert_lm_prediction_head"
    paths[f"{words}/bias"] = arrays["cls.predictions.bias"]
    if options.transform:
        dense(f"{words}/transform/dense", "cls.predictions.transform.dense")
        norm(f"{words}/transform/LayerNorm", "cls.predictions.transform.LayerNorm")
    dense(f"layer_with_weights-{head + 1}/seq_relationship", "cls.seq_relationship")
    return paths


def write_random(
    prefix: Path, task: str, sizes: Sizes, options: Options, updates: int
) -> tuple[Path, Arrays, tuple[Arrays, Arrays]]:
    """Write random weights and moments; return ``prefix`` and both by PyTorch's names."""
    arrays = random_weights(task, sizes, options)
    moments = random_moments(arrays)
    paths, first, second = (graph_paths(task, values, sizes.layers, options) for values in (arrays, *moments))
    return write_published(prefix, paths, (first, second), updates), arrays, moments


def write_published(
    prefix: Path,
    paths: Mapping[str, np.ndarray],
    moments: tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]] | None = None,
    updates: int = 0,
) -> Path:
    """Write arrays, and both moments of each, by their paths in the object graph; return ``prefix``."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    root, variables = tf.Module(), {}
    for path, value in paths.items():
        node = root
        *parents, leaf = path.split("/")
        for name in parents:
            if not hasattr(node, name):
                setattr(node, name, tf.Module())
            node = getattr(node, name)
        # The program's weights are float16 beside moments of float32, which the optimizers of Keras cannot have.
        variables[path] = tf.Variable(value, dtype=tf.float16 if moments is None else tf.float32)
        setattr(node, leaf, variables[path])
    tracked = {name: getattr(root, name) for name in {path.split("/")[0] for path in paths}}
    if moments is not None:
        tracked["optimizer"] = optimizer = tf_keras.optimizers.legacy.Adam()
        for path, variable in variables.items():
            for name, values in zip("mv", moments):
                optimizer.add_slot(variable, name, initializer=tf.zeros(variable.shape, tf.float32))
                optimizer.get_slot(variable, name).assign(values[path])
        optimizer.iterations.assign(updates)
    tf.train.Checkpoint(**tracked).write(str(prefix))
    return prefix
