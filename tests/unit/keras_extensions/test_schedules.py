"""The schedules equal their piecewise definitions in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from keras_extensions.backend import tf
from keras_extensions.schedules import UpDown, WarmUp, make_schedule


@pytest.mark.parametrize(
    "total, fraction, warmup", [(10, 0.4, 4), (100, 0.28, 28), (100, 0.29, 29), (7, 0.0, 0), (5, 1.0, 5), (1, 0.5, 0)]
)
def test_rates_of_a_whole_run(total, fraction, warmup):
    up = 0.006 * np.arange(1, warmup + 1) / max(warmup, 1)
    down = np.linspace(0.006, 0.0, total - warmup + 1)[:-1]
    expected = np.concatenate([up, down])
    schedule = WarmUp(0.006, total, fraction)
    rates = tf.function(schedule, jit_compile=True)(tf.range(total, dtype=tf.int64))
    np.testing.assert_allclose(rates, expected, rtol=1e-5)
    assert np.all(np.asarray(rates) > 0), "every update changes the weights"
    assert rates.dtype == tf.float32


@pytest.mark.parametrize(
    "total, fraction, expected",
    [  # in units of the peak; the first row was logged by the published program
        (6, 0.28, [0, 1, 0.6, 0.4, 0.2, 0]),
        (8, 0.5, [0, 0.25, 0.5, 0.75, 1, 0.5, 0.25, 0]),
        (4, 0.2, [0.75, 0.5, 0.25, 0]),
        (4, 1.0, [0, 0.25, 0.5, 0.75]),
    ],
)
def test_rates_of_the_published_schedule(total, fraction, expected):
    rates = tf.function(UpDown(0.006, total, fraction), jit_compile=True)(tf.range(total, dtype=tf.int64))
    np.testing.assert_allclose(rates, np.maximum(0.006 * np.asarray(expected), 1e-7), rtol=1e-6)


@pytest.mark.parametrize(
    "name, shape",
    [
        ("linear", lambda done: 1 - done),
        ("constant", np.ones_like),
        ("cosine", lambda done: 0.5 * (1 + np.cos(np.pi * done))),
        ("polynomial", lambda done: (1 - done) ** 0.5),
    ],
)
def test_shape_after_the_warm_up(name, shape):
    rates = make_schedule(name, 0.006, 50, 0.2, power=0.5)(tf.range(51))
    np.testing.assert_allclose(rates[:10], 0.006 * np.arange(1, 11) / 10, rtol=1e-5)
    np.testing.assert_allclose(rates[10:], 0.006 * shape(np.arange(41) / 40), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", ["linear", "cosine", "polynomial"])
def test_rate_is_zero_after_the_run(name):
    schedule = make_schedule(name, 1.0, 10, 0.5)
    assert float(schedule(10)) == 0.0
    assert float(schedule(25)) == 0.0
