"""Stochastic rounding: its results are numpy's neighbouring numbers, and their mean is unbiased."""

from __future__ import annotations

import numpy as np
import pytest

from keras_extensions.backend import tf
from optimization.optimizers import AdamW
from optimization.stochastic_rounding import stochastic_round


def neighbours(values):
    """Return the nearest float16 numbers at or below, and at or above, the values."""
    nearest = values.astype(np.float16)
    exact = nearest.astype(np.float32)
    low = np.where(exact > values, np.nextafter(nearest, np.float16(-np.inf)), nearest)
    high = np.where(exact < values, np.nextafter(nearest, np.float16(np.inf)), nearest)
    return low.astype(np.float32), high.astype(np.float32)


def samples():
    random = np.random.default_rng(3)
    scales = np.float32(2.0) ** random.integers(-22, 15, 4000).astype(np.float32)
    return (random.standard_normal(4000).astype(np.float32) * scales).clip(-60000, 60000)


def test_results_are_neighbouring_numbers():
    values = samples()
    low, high = neighbours(values)
    rounded = stochastic_round(tf.constant(values), tf.float16, [1, 2]).numpy().astype(np.float32)
    assert np.all((rounded == low) | (rounded == high))
    inexact = low != high
    assert 0.4 < np.mean(rounded[inexact] == high[inexact]) < 0.6


@pytest.mark.parametrize("dtype, step", [(tf.float16, 2.0**-10), (tf.bfloat16, 2.0**-7)])
@pytest.mark.parametrize("share", [0.02, 0.25, 0.9])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_mean_is_unbiased(dtype, step, share, sign):
    """Results are binomially distributed; their mean must be within 4 standard deviations."""
    count = 100_000
    values = tf.fill([count], sign * (1.0 + share * step))
    rounded = tf.cast(stochastic_round(values, dtype, [5, 6]), tf.float64).numpy()
    assert set(np.abs(rounded)) == {1.0, 1.0 + step}
    deviation = step * np.sqrt(share * (1 - share) / count)
    assert abs(rounded.mean() - sign * (1 + share * step)) < 4 * deviation


def test_representable_numbers_are_unchanged():
    values = np.array([0, -0.0, 1, -2.5, 65504, 2**-24, -(2**-14), np.inf, -np.inf, np.nan], np.float32)
    rounded = stochastic_round(tf.constant(values), tf.float16, [1, 1]).numpy().astype(np.float32)
    np.testing.assert_array_equal(rounded, values)


def test_compiled_results_are_equal():
    values = tf.constant(samples())
    compiled = tf.function(lambda x: stochastic_round(x, tf.float16, tf.constant([1, 2])), jit_compile=True)
    np.testing.assert_array_equal(compiled(values), stochastic_round(values, tf.float16, [1, 2]))


def trained(rounding_seed, updates=200):
    """Return float16 weights, initially 1, after updates of 1e-4, a tenth of the distance between neighbours."""
    weights = tf.Variable(tf.ones([4000], tf.float16))
    optimizer = AdamW(1e-4, weight_decay_rate=0.0, rounding_seed=rounding_seed)
    step = tf.function(lambda: optimizer.apply_gradients([(tf.ones([4000]), weights)]))
    for _ in range(updates):
        step()
    return weights.numpy().astype(np.float32)


def test_stochastic_rounding_keeps_small_updates():
    assert np.all(trained(None) == 1.0)
    weights = trained(7)
    assert abs(weights.mean() - (1.0 - 200 * 1e-4)) < 5e-4
    np.testing.assert_array_equal(weights, trained(7))
    assert not np.array_equal(weights, trained(8))
