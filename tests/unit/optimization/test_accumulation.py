"""Accumulation of gradients equals references in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from keras_extensions.backend import tf
from optimization import accumulation

EXPECTED = {"sum": np.sum, "mean": np.mean, "running_mean": np.mean}


@pytest.mark.parametrize("reduction", ["sum", "mean", "running_mean"])
@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("count", [1, 7])
def test_reductions_inside_a_while_loop(reduction, jit, count):
    rng = np.random.default_rng(count)
    gradients = [rng.normal(size=(count, *shape)).astype(np.float32) for shape in [(3, 2), (5,)]]
    variables = [tf.Variable(tf.zeros(g.shape[1:])) for g in gradients]

    @tf.function(jit_compile=jit)
    def accumulate(micro_batches):
        def body(index, accumulated):
            new = [g[index] for g in micro_batches]
            return index + 1, accumulation.add(reduction, accumulated, new, index)

        _, accumulated = tf.while_loop(
            lambda index, _: index < count, body, (tf.constant(0), accumulation.initial(variables))
        )
        return accumulation.finish(reduction, accumulated, count)

    for result, gradient in zip(accumulate([tf.constant(g) for g in gradients]), gradients, strict=True):
        np.testing.assert_allclose(result, EXPECTED[reduction](gradient, axis=0), rtol=1e-5, atol=1e-6)


def test_running_mean_does_not_overflow():
    """Accumulates eight gradients of 30,000 in float16, whose largest number is 65,504."""
    results = {}
    for reduction in ("sum", "running_mean"):
        accumulated = [tf.zeros([2], tf.float16)]
        for index in range(8):
            accumulated = accumulation.add(reduction, accumulated, [tf.fill([2], 3e4)], index)
        results[reduction] = accumulation.finish(reduction, accumulated, 8)[0].numpy()
    assert np.isinf(results["sum"]).all()
    np.testing.assert_allclose(results["running_mean"], 3e4, rtol=2e-3)


def test_repeated_rows_of_an_embedding_gradient_are_summed():
    variable = tf.Variable(tf.zeros([3, 2]))
    sparse = tf.IndexedSlices(tf.ones([3, 2]), tf.constant([2, 0, 2]), dense_shape=tf.constant([3, 2]))
    (result,) = accumulation.add("sum", accumulation.initial([variable]), [sparse], 0)
    np.testing.assert_array_equal(result, [[1, 1], [0, 0], [2, 2]])
