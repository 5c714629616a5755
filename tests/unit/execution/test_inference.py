"""Layers of models that only predict, in graphs of any shape, beside NumPy in float64."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from execution.software.inference import InferencePlatform, LayerNormalization, is_fused
from execution.software.platform import SoftwarePlatform
from execution.software.precision import Numerics
from keras_extensions.backend import keras, tf
from model.architecture import Architecture
from model.tasks import TASKS, TOKEN_CLASSIFICATION
from tasks import prediction_config, task_class
from tests import ROOT
from training.machine import prediction_options

H, INPUTS, EPSILON = 48, 64, 1e-2
ERROR = {"float32": 2e-6, "bfloat16": 2.0**-8}  # of a result that is rounded once
CHOICE = """
from execution.interface import ExecutionOptions as Options
from execution.select import select_platform
for options in (Options(xla=False, only_predicts=True), Options(xla=False), Options(xla=True, only_predicts=True)):
    print(type(select_platform(options)).__name__)
"""


def platform(precision: str, kind: type[SoftwarePlatform] = InferencePlatform) -> SoftwarePlatform:
    return kind(seed=0, xla=False, recompute=False, numerics=Numerics(precision))


def numbers(seed: int, *shape: int, precision: str) -> Any:
    """Return random numbers that the format has, as a tensor."""
    return tf.cast(np.random.default_rng(seed).normal(size=shape), precision)


def exact(x: Any) -> np.ndarray:
    return tf.cast(x, tf.float64).numpy()


def with_random_weights(layer: keras.layers.Layer, precision: str) -> list[np.ndarray]:
    """Give a layer random weights, and return them."""
    for number, weight in enumerate(layer.weights):
        weight.assign(tf.cast(numbers(number, *weight.shape, precision=precision) * 0.2, weight.dtype))
    return [exact(weight) for weight in layer.weights]


def in_graph(layer: Callable[..., Any], *inputs: Any) -> np.ndarray:
    """Return what a layer computes in a graph that is traced for any batch and length."""
    specs = [tf.TensorSpec((None, *[None] * (x.shape.rank - 2), x.shape[-1]), x.dtype) for x in inputs]
    return exact(tf.function(layer, input_signature=specs, autograph=False)(*inputs))


def gelu(x: np.ndarray, approximate: bool) -> np.ndarray:
    if approximate:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf)(x * math.sqrt(0.5)))


def norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + EPSILON) * gamma + beta


def assert_close(computed: np.ndarray, expected: np.ndarray, precision: str, roundings: int = 1) -> None:
    scale = np.maximum(np.abs(expected), 0.5)
    assert np.abs((computed - expected) / scale).max() < roundings * ERROR[precision]


@pytest.fixture(params=list(ERROR))
def precision(request: pytest.FixtureRequest) -> str:
    if request.param != "float32" and not is_fused():
        pytest.skip("this TensorFlow does not fuse, so bfloat16 has the plain layers")
    return str(request.param)


@pytest.mark.parametrize("use_bias", [True, False])
def test_products(use_bias: bool, precision: str) -> None:
    on = platform(precision)
    with on.scope():
        layer = on.dense(H, use_bias, "zeros", "dense")
        layer.build((None, None, INPUTS))
    matrix, *bias = with_random_weights(layer, precision)
    x = numbers(7, 3, 5, INPUTS, precision=precision)
    assert_close(in_graph(layer, x), exact(x) @ matrix + sum(bias), precision)
    assert [weight.name.rsplit("/")[-1] for weight in layer.weights] == ["kernel:0", "bias:0"][: 1 + use_bias]


@pytest.mark.parametrize("constant", [False, True])
def test_constant_weights_are_those_of_the_tracing(constant: bool, precision: str) -> None:
    on = InferencePlatform(constant, seed=0, xla=False, recompute=False, numerics=Numerics(precision))
    with on.scope():
        layer = on.linear_gelu(H, False, "zeros", "up")
        layer.build((None, None, INPUTS))
    matrix, bias = with_random_weights(layer, precision)
    x = numbers(7, 3, 5, INPUTS, precision=precision)
    compute = tf.function(layer, autograph=False)
    for factor in (1, 1 if constant else 2):
        assert_close(exact(compute(x)), gelu(exact(x) @ matrix * factor + bias, False), precision)
        layer.kernel.assign(layer.kernel * 2)


@pytest.mark.parametrize("name", sorted({*TASKS} - {TOKEN_CLASSIFICATION}))  # its tags would come from a checkpoint
def test_blocks_that_are_not_joined_have_the_same_weights(name: str, tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcde"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    given = {"max_seq_length": 16, "max_predictions_per_seq": 2, "vocab_file": str(tmp_path / "vocab.txt")}
    config = prediction_config(**given, glue_task="mrpc")
    architecture = Architecture(num_hidden_layers=1, hidden_size=H, num_attention_heads=2, vocab_size=len(words))

    def set_weights(source: Any) -> None:
        draw = np.random.default_rng(1)
        for weight in source.weights:
            weight.assign(draw.normal(size=weight.shape))

    weights = []
    for kind in (InferencePlatform, SoftwarePlatform):
        task = task_class(name)(config, architecture, None)
        built = task.build(platform("float32", kind), set_weights)
        assert (built.joined is None) == (kind is InferencePlatform)
        weights.append([weight.numpy() for block in built.blocks for weight in block.weights])
    assert len(weights[0]) == len(weights[1]) >= 15
    for own, expected in zip(*weights):
        np.testing.assert_array_equal(own, expected)


@pytest.mark.parametrize(
    ("layers", "hidden", "precision", "constant"),
    [(6, 384, "bfloat16", True), (6, 384, "float32", False), (12, 384, "bfloat16", False), (2, 768, "bfloat16", True)],
)
def test_only_small_models_in_bfloat16_have_constant_weights(
    layers: int, hidden: int, precision: str, constant: bool
) -> None:
    """Each layer has 12·H² weights: 1.77 million of 384, 7.08 of 768; 16 million are the limit."""
    architecture = Architecture(num_hidden_layers=layers, hidden_size=hidden, intermediate_size=4 * hidden)
    options = prediction_options(prediction_config(precision), architecture)
    assert options.only_predicts and options.constant_weights == constant


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_has_all_digits_of_negative_numbers(approximate: bool, precision: str) -> None:
    on = platform(precision)
    with on.scope():
        layer = on.linear_gelu(1, approximate, "ones", "up")
        layer.build((None, None, 1))
    x = tf.cast(np.linspace(-5, 3, 200).reshape(2, 100, 1), precision)
    expected = gelu(exact(x), approximate)
    large = np.abs(expected) > 1e-5  # beyond, the error of erf in float32
    for computed in (in_graph(layer, x), exact(layer(x))):
        relative = np.abs(computed / expected - 1)[large]
        assert relative.max() < 0.03 and np.median(relative) < ERROR[precision]


def test_norm_of_a_sum(precision: str) -> None:
    on = platform(precision)
    with on.scope():
        layer = on.linear_dropout_norm(H, True, "zeros", 0.1, EPSILON, "output")
        layer(numbers(1, 2, 4, INPUTS, precision=precision), numbers(2, 2, 4, H, precision=precision))
    weights = dict(zip([weight.name for weight in layer.weights], with_random_weights(layer, precision)))
    matrix, bias, gamma, beta = (
        weights[f"output/{name}:0"] for name in ("dense/kernel", "dense/bias", "norm/gamma", "norm/beta")
    )
    x, residual = numbers(3, 3, 5, INPUTS, precision=precision), numbers(4, 3, 5, H, precision=precision)
    expected = norm(exact(residual) + exact(x) @ matrix + bias, gamma, beta)
    assert_close(in_graph(layer, x, residual), expected, precision, roundings=3)


@pytest.mark.parametrize("sequences", [1, 3])
def test_norm_in_a_graph_and_without_one(sequences: int, precision: str) -> None:
    with platform(precision).scope():
        layer = LayerNormalization(EPSILON)
        layer.build((None, None, H))
    gamma, beta = with_random_weights(layer, precision)
    x = numbers(5, sequences, 5, H, precision=precision) * 3 + 1
    for computed in (in_graph(layer, x), exact(tf.function(layer, autograph=False)(x)), exact(layer(x))):
        assert_close(computed, norm(exact(x), gamma, beta), precision, roundings=2)


@pytest.mark.parametrize("sequences", [1, 3])
def test_tokens_and_heads_are_swapped_to_the_bit(sequences: int, precision: str) -> None:
    on, x = platform(precision), numbers(5, sequences, 5, 4, H, precision=precision)
    swapped = tf.function(on.swap_tokens_and_heads, autograph=False)(x)
    assert swapped.dtype == x.dtype
    np.testing.assert_array_equal(exact(swapped), exact(x).swapaxes(1, 2))


def test_attention(precision: str) -> None:
    on = platform(precision)
    with on.scope():
        layer = on.attention(0.1, "attention")
    query, key, value = (numbers(seed, 2, 3, 7, 16, precision=precision) for seed in range(3))
    bias = tf.cast(np.where(np.arange(7) < 5, 0, -1e4)[None, None, None].repeat(2, 0), precision)
    scores = exact(query) @ exact(key).swapaxes(-1, -2) / 4 + exact(bias)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    expected = shares / shares.sum(-1, keepdims=True) @ exact(value)
    computed = exact(tf.function(layer, autograph=False)(query, key, value, bias))
    assert_close(computed, expected, precision, roundings=4)


@pytest.mark.parametrize("fuses", [True, False])
def test_models_that_only_predict_have_it_where_tensorflow_fuses(fuses: bool) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", **({} if fuses else {"TF_ENABLE_ONEDNN_OPTS": "0"})}
    command = [sys.executable, "-c", CHOICE]
    printed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    kind = "InferencePlatform" if fuses and is_fused() else "SoftwarePlatform"
    assert printed.split() == [kind, "SoftwarePlatform", "SoftwarePlatform"]
