"""The software platform's layers and operations, compared with numpy and Keras."""

from __future__ import annotations

import math

import numpy as np
import pytest

from execution.software.dropout import Dropout, DropoutSeeds, keep_mask, micro_batch_seed
from execution.software.layers import LayerNormalization, embedding_lookup, exact_gelu, serialized_matmul
from keras_extensions.backend import keras, tf

RANDOM = np.random.default_rng(3)


def test_gelu_is_x_times_the_normal_distribution():
    x = np.linspace(-6, 6, 241).astype("float32")
    expected = [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x.astype("float64")]
    np.testing.assert_allclose(exact_gelu(tf.constant(x)), expected, atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_gelu_gradient_is_the_derivative(compiled):
    x = tf.constant(np.linspace(-6, 6, 241).astype("float32"))

    @tf.function(jit_compile=compiled)
    def derivative(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            total = tf.reduce_sum(exact_gelu(values))
        return tape.gradient(total, values)

    v = x.numpy().astype("float64")
    normal = np.array([0.5 * (1 + math.erf(w / math.sqrt(2))) for w in v])
    np.testing.assert_allclose(derivative(x), normal + v * np.exp(-v * v / 2) / math.sqrt(2 * math.pi), atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4, 5)])
def test_mask_is_a_hash_of_the_element_number(shape, compiled):
    seed = np.array([-5, 123456789], np.int32)
    start, key = (int(word) for word in seed.view(np.uint32))
    kept = []
    for number in range(math.prod(shape)):
        word = (number * 0x9E3779B1 + start) % 2**32
        word = ((word ^ word >> 16) * 0x85EBCA6B + key) % 2**32
        word = (word ^ word >> 13) * 0xC2B2AE35 % 2**32
        kept.append(word ^ word >> 16 >= round(0.3 * 2**32))
    mask = tf.function(lambda seed: keep_mask(tf.constant(shape), 0.3, seed), jit_compile=compiled)
    np.testing.assert_array_equal(mask(seed), np.reshape(kept, shape))


def test_embedding_gradient_sums_repeated_rows():
    table = tf.Variable(RANDOM.normal(size=(7, 4)).astype("float32"))
    ids = tf.constant([[1, 3, 1], [6, 1, 0]])
    upstream = RANDOM.normal(size=(2, 3, 4)).astype("float32")
    with tf.GradientTape() as tape:
        rows = embedding_lookup(tf.convert_to_tensor(table), ids)
        loss = tf.reduce_sum(rows * upstream)
    expected = np.zeros((7, 4))
    np.add.at(expected, ids.numpy(), upstream)
    np.testing.assert_array_equal(rows, table.numpy()[ids.numpy()])
    np.testing.assert_allclose(tape.gradient(loss, table), expected, atol=1e-6)


def test_serialized_matmul_is_the_product_with_the_transposed_table():
    x, table = RANDOM.normal(size=(2, 3, 5)), RANDOM.normal(size=(11, 5))
    ours = serialized_matmul(tf.constant(x, tf.float32), tf.constant(table, tf.float32))
    np.testing.assert_allclose(ours, x @ table.T, rtol=1e-4, atol=1e-5)


def test_layer_normalization_equals_keras():
    x = tf.constant(RANDOM.normal(2.0, 3.0, size=(4, 6, 32)).astype("float32"))
    ours, theirs = LayerNormalization(1e-12), keras.layers.LayerNormalization(epsilon=1e-12)
    ours(x), theirs(x)
    for name in ("gamma", "beta"):
        values = RANDOM.normal(size=32).astype("float32")
        getattr(ours, name).assign(values)
        getattr(theirs, name).assign(values)
    np.testing.assert_allclose(ours(x), theirs(x), atol=2e-5)


def dropped(rate, seed, layer=None, size=200_000, scope=None):
    scope = scope or DropoutSeeds()
    layer = layer or Dropout(rate, scope)
    with scope.using(seed):
        return layer(tf.ones(size), training=True).numpy()


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_the_rate_and_keeps_the_mean(rate):
    values = dropped(rate, tf.constant([1, 2]))
    deviations = 5 * math.sqrt(rate * (1 - rate) / values.size)
    assert abs((values == 0).mean() - rate) < deviations
    np.testing.assert_allclose(values[values != 0], 1 / (1 - rate), rtol=1e-6)


def test_dropout_masks_are_independent():
    """At a rate of 0.5 the four combinations of two elements are equally frequent (chi-square test)."""
    masks = [
        dropped(0.5, micro_batch_seed(7, tf.constant(update), tf.constant(micro))) != 0
        for update in range(3)
        for micro in range(3)
    ]
    pairs = [(mask[:-lag], mask[lag:]) for mask in masks for lag in (1, 2, 64, 128, 768)]
    pairs += [(one, other) for one in masks for other in masks if one is not other]
    for one, other in pairs:
        counts = np.bincount(2 * one + other, minlength=4)
        expected = one.size / 4
        assert ((counts - expected) ** 2 / expected).sum() < 30  # 3 degrees of freedom: once in a million


def test_dropout_masks_depend_only_on_seed_and_layer():
    scope = DropoutSeeds()
    first, second = Dropout(0.5, scope), Dropout(0.5, scope)
    seed = tf.constant([3, 4])
    one = dropped(0.5, seed, first, scope=scope)
    np.testing.assert_array_equal(one, dropped(0.5, seed, first, scope=scope))
    for other in (dropped(0.5, seed, second, scope=scope), dropped(0.5, tf.constant([3, 5]), first, scope=scope)):
        assert abs((one == other).mean() - 0.5) < 0.01


def test_dropout_is_off_outside_training():
    layer = Dropout(0.5, DropoutSeeds())
    np.testing.assert_array_equal(layer(tf.ones(100)), np.ones(100))


def test_seeds_of_micro_batches_are_distinct():
    seeds = {
        tuple(micro_batch_seed(run, tf.constant(update), tf.constant(micro)).numpy())
        for run in (0, 1)
        for update in range(4)
        for micro in range(4)
    }
    assert len(seeds) == 2 * 4 * 4
