"""Loss scales, compared with references in plain Python and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from keras_extensions.backend import tf
from optimization.loss_scaling import LARGEST_SCALE, AutomaticLossScale, StaticLossScale, all_finite


def reference(outcomes, initial, interval):
    factor, good, factors = initial, 0, []
    for finite in outcomes:
        good = good + 1 if finite else 0
        if not finite:
            factor = max(factor / 2, 1.0)
        elif good == interval:
            factor, good = min(factor * 2, LARGEST_SCALE), 0
        factors.append(factor)
    return factors


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("initial", [2.0**15, 2.0, 2.0**23])
def test_factors_follow_the_reference(seed, initial, monkeypatch):
    monkeypatch.setattr("optimization.loss_scaling.GROWTH_INTERVAL", 3)
    outcomes = np.random.default_rng(seed).random(120) < 0.8
    scale = AutomaticLossScale(initial)
    adapt = tf.function(scale.adapt)
    factors = []
    for finite in outcomes:
        adapt(tf.constant(finite))
        factors.append(float(scale.factor))
    assert factors == reference(outcomes, initial, interval=3)


@pytest.mark.parametrize("scale", [StaticLossScale, AutomaticLossScale])
def test_unscaling_is_exact_and_in_float32(scale):
    gradients = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float16)
    (unscaled,) = scale(2.0**15).unscale([tf.constant(gradients)])
    assert unscaled.dtype == tf.float32
    np.testing.assert_array_equal(unscaled, gradients.astype(np.float32) / 2.0**15)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
def test_one_non_finite_number_is_detected(bad, dtype):
    good = [tf.ones([3, 2], dtype), tf.zeros([4], dtype)]
    assert bool(all_finite(good))
    assert not bool(all_finite([*good, tf.cast([0.0, bad], dtype)]))
