"""Fused operations have the values, gradients and masks of separate ones, and are used where they are faster."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from execution.select import select_platform
from execution.software import dropout, fused, layers
from execution.software.devices import use_device
from execution.software.precision import Formats, WeightCopies, choose_numerics, fast_formats
from keras_extensions.backend import tf
from settings.loading import resolve_call
from tests import ROOT
from training.machine import execution_options
from utilities.environment import fast_bfloat16

PRODUCTS = """
from keras_extensions.backend import tf
x, w, q = (tf.ones(shape, tf.bfloat16) for shape in ((1024, 256), (256, 1024), (8, 4, 128, 64)))
y, s = tf.matmul(x, w), tf.matmul(q, q, transpose_b=True)
tf.matmul(y, w, transpose_b=True), tf.matmul(x, y, transpose_a=True), tf.matmul(s, q), tf.matmul(s, q, transpose_a=True)
"""

RANDOM = np.random.default_rng(3)
SEED = tf.constant([5, 7], tf.int32)


def normal(*shape):
    return tf.constant(RANDOM.normal(size=shape).astype("float32"))


def assert_equal(one, other, *tensors):
    """Check that two functions have the same value, and the same gradients for the same upstream gradient."""
    results = []
    for function in (one, other):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            value = function(*tensors)
            upstream = tf.cos(tf.reshape(tf.range(tf.size(value), dtype=tf.float32), tf.shape(value)))
            loss = tf.reduce_sum(value * upstream)
        results.append([value, *tape.gradient(loss, tensors)])
    for number, (ours, theirs) in enumerate(zip(*results, strict=True)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5, err_msg=f"result {number}")


def drop(rate, number):
    seeds = dropout.DropoutSeeds()
    layer = [dropout.Dropout(rate, seeds) for _ in range(number)][-1]

    def apply(x):
        with seeds.using(SEED):
            return layer(x)

    return apply, fused.Mask(rate, SEED, tf.constant(number))


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_with_bias(approximate):
    plain = layers.approximate_gelu if approximate else layers.exact_gelu
    x, bias = 3 * normal(4, 6, 8), normal(8)
    assert_equal(lambda x, b: fused.gelu(x, b, approximate), lambda x, b: plain(x + b), x, bias)


def test_dropout_draws_the_masks_of_float32():
    separate, mask = drop(0.3, 2)
    assert_equal(lambda x: fused.dropout(x, mask), separate, normal(5, 40))


def normalize(x, gamma, beta):
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-5) * gamma + beta


@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_norm_of_residual_and_dropout(rate):
    separate, mask = drop(rate, 3)

    def composed(residual, gamma, beta, x, bias):
        return normalize(residual + separate(x + bias), gamma, beta)

    chosen = mask if rate else None
    tensors = (normal(4, 6, 8), normal(8), normal(8), normal(4, 6, 8), normal(8))
    assert_equal(lambda *all: fused.norm(*all[:3], 1e-5, all[3:], chosen), composed, *tensors)


def test_norm_alone():
    assert_equal(lambda *all: fused.norm(*all, 1e-5), normalize, normal(4, 6, 8), normal(8), normal(8))


def test_joined_layers_are_the_same_as_each_of_them():
    layers, x = [fused.Linear(units, WeightCopies()) for units in (8, 8, 4)], normal(2, 3, 5)
    for layer in layers:
        layer.build(x.shape)
        layer.bias.assign(normal(layer.units))
    assert_equal(lambda x: fused.joined(layers, x), lambda x: tf.concat([layer(x) for layer in layers], -1), x)


@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_attention(rate):
    separate, mask = drop(rate, 1)
    bias = tf.where(RANDOM.random((2, 1, 1, 6)) < 0.3, -1e4, 0.0)

    def composed(query, key, value):
        scores = tf.matmul(query, key, transpose_b=True) * 0.5 + tf.cast(bias, tf.float32)
        return tf.matmul(separate(tf.nn.softmax(scores)), value)

    chosen = mask if rate else None
    tensors = [normal(2, 3, 6, 4) for _ in range(3)]
    assert_equal(lambda q, k, v: fused.attention(q, k, v, tf.cast(bias, tf.float32), 0.5, chosen), composed, *tensors)


def test_cross_entropy():
    labels = tf.constant(RANDOM.integers(0, 11, (2, 3)), tf.int32)
    assert_equal(
        lambda scores: fused.cross_entropy(scores, labels),
        lambda scores: tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores),
        10 * normal(2, 3, 11),
    )


@pytest.mark.parametrize(
    ("changes", "described"),
    [
        ({}, "graph with parts in XLA, float32"),
        ({"execution.xla": False}, "graph, float32"),
        ({"execution.xla": True}, "XLA, float32"),
        ({"execution.precision": "mixed_bfloat16"}, "graph with parts in XLA, mixed_bfloat16"),
        ({"execution.precision": "float16"}, "XLA, float16"),
        ({"fp_exceptions": True}, "graph, float32"),
        ({"replace_layers": False}, "XLA, float32"),
        ({"sparsity.ratio": 0.9, "sparsity.kernel": "gather"}, "XLA, float32"),  # room: sparsity
    ],
    ids=str,
)
def test_what_xla_compiles_on_a_cpu(changes, described):
    recipe = str(ROOT / "configs" / "pretraining" / "pretrain_tiny_128_phase1.json")
    system = {"execution.platform": "software", "execution.device": "cpu", "execution.precision": "float32"}
    values = {**system, "generated_dataset": True, **changes}
    config = resolve_call("pretraining", recipe, values).config
    assert f" CPU, {described}" in select_platform(execution_options(config)).describe()


@pytest.mark.parametrize(
    ("requested", "formats", "expected", "reason"),
    [
        ("auto", Formats(False, "amx_bf16"), "mixed_bfloat16", "fast here because of amx_bf16"),
        ("auto", Formats(True, "compute capability 8.0"), "mixed_bfloat16", "because of compute capability 8.0"),
        ("auto", Formats(True, ""), "float16", "as published, because of tensor cores"),
        ("auto", Formats(False, ""), "float32", "no fast float16 or bfloat16 here"),
        ("float32", Formats(True, "compute capability 8.0"), "float32", ""),
        ("mixed_bfloat16", Formats(False, ""), "mixed_bfloat16", ""),
    ],
    ids=str,
)
def test_auto_selects_a_fast_format(requested, formats, expected, reason):
    chosen = choose_numerics(requested, formats)
    assert chosen.precision == expected and reason in chosen.describe()
    assert chosen.is_low_precision == (expected == "float16")


@pytest.mark.parametrize(("xla", "onednn", "expected"), [(False, "1", "amx_bf16"), (True, "1", ""), (False, "0", "")])
def test_bfloat16_on_cpus_is_fast_with_onednn_only(monkeypatch, xla, onednn, expected):
    monkeypatch.setattr("execution.software.precision.fast_bfloat16", lambda: "amx_bf16")
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [])
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", onednn)
    assert fast_formats(xla) == Formats(False, expected)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ([(9, 0), (8, 0)], Formats(True, "compute capability 8.0")),
        ([(9, 0)], Formats(True, "compute capability 9.0")),
        ([(9, 0), (7, 5)], Formats(True, "")),
        ([(6, 1)], Formats(False, "")),
        ([None], Formats(False, "")),
    ],
    ids=str,
)
def test_formats_are_those_of_the_oldest_gpu(monkeypatch, capabilities, expected):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: capabilities)
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: {"compute_capability": gpu})
    assert fast_formats(False) == expected


def test_float32_on_a_gpu_is_float32_also_after_tensorflow_has_started(monkeypatch):
    def refused(gpu, enable):
        raise RuntimeError("Physical devices cannot be modified after being initialized")

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["the GPU"])
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", refused)
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    try:
        use_device("auto")
        assert not tf.config.experimental.tensor_float_32_execution_enabled()
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


@pytest.mark.skipif(fast_bfloat16() != "amx_bf16", reason="this processor has no AMX")
def test_products_use_amx():
    """oneDNN prints its implementation of each forward and backward product of an encoder layer."""
    variables = {**os.environ, "ONEDNN_VERBOSE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    line = [sys.executable, "-c", PRODUCTS]
    done = subprocess.run(line, env=variables, capture_output=True, text=True, check=True)
    products = [text for text in done.stdout.splitlines() if ",exec,cpu,matmul," in text]
    assert len(products) == 6, done.stdout
    assert all("amx" in text for text in products), products
