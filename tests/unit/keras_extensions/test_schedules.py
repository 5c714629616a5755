"""The up-down schedule against its definition, piece by piece, in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from keras_extensions.backend import keras, tf
from keras_extensions.schedules import UpDown
from utilities.errors import UserError


@pytest.mark.parametrize(
    "total, fraction, warmup",
    [(10, 0.4, 4), (100, 0.28, 28), (100, 0.29, 29), (7, 0.0, 0), (5, 1.0, 5), (1, 0.5, 0)],
)
def test_every_update_of_a_run(total, fraction, warmup):
    up = 0.006 * np.arange(1, warmup + 1) / max(warmup, 1)
    down = np.linspace(0.006, 0.0, total - warmup + 1)[:-1]
    expected = np.concatenate([up, down])
    schedule = UpDown(0.006, total, fraction)
    rates = tf.function(schedule, jit_compile=True)(tf.range(total, dtype=tf.int64))
    np.testing.assert_allclose(rates, expected, rtol=1e-5)
    assert np.all(np.asarray(rates) > 0), "no update is wasted"
    assert rates.dtype == tf.float32


def test_rate_is_zero_after_the_run():
    schedule = UpDown(1.0, 10, 0.5)
    assert float(schedule(10)) == 0.0
    assert float(schedule(25)) == 0.0


def test_configuration_round_trip():
    serialized = keras.optimizers.schedules.serialize(UpDown(0.1, 20, 0.25))
    copy = keras.optimizers.schedules.deserialize(serialized)
    assert (copy.max_learning_rate, copy.total_steps, copy.warmup_frac) == (0.1, 20, 0.25)


@pytest.mark.parametrize(
    "arguments, field",
    [((-1.0, 5, 0.1), "max_learning_rate"), ((1.0, 0, 0.1), "0 updates"), ((1.0, 5, 1.5), "warmup_frac")],
)
def test_impossible_schedules(arguments, field):
    with pytest.raises(UserError, match=field):
        UpDown(*arguments)
