"""What the emulation computes outside of pipelines, compared with TensorFlow's and NumPy's own arithmetic.

``python tests/emulation/run.py tests/emulation/outside_programs.py``; ``test_outside_programs.py`` runs it.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from ipu_tensorflow_addons.keras.layers import GroupNormalization, LayerNormalization
from tensorflow.python.ipu.config import IPUConfig
from tensorflow.python.ipu.gradient_accumulation import GradientAccumulationReductionMethod
from tensorflow.python.ipu.ipu_strategy import IPUStrategyV1
from tensorflow.python.ipu.ops.embedding_ops import embedding_lookup
from tensorflow.python.ipu.ops.functional_ops import outlined_function

random = np.random.default_rng(1)


def close(one, other) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def lookup_has_a_gradient() -> None:
    table = tf.Variable(random.normal(size=(5, 3)).astype("float32"))
    ids = tf.constant([4, 0, 4])
    with tf.GradientTape() as tape:
        rows = embedding_lookup(table, ids)
        total = tf.reduce_sum(rows * rows)
    expected = 2 * table.numpy() * [[1], [0], [0], [0], [2]]
    close(rows, table.numpy()[[4, 0, 4]])
    close(tape.gradient(total, table), expected)


def outlined_functions_run() -> None:
    weights = tf.Variable(random.normal(size=(3, 2)).astype("float32"))
    x = tf.constant(random.normal(size=(4, 3)).astype("float32"))
    close(outlined_function(lambda value: tf.matmul(value, weights) + 1.0)(x), x.numpy() @ weights.numpy() + 1)


def functions_without_compilation_run() -> None:
    table = tf.constant(random.normal(size=(5, 3)).astype("float32"))
    close(tf.function(lambda ids: embedding_lookup(table, ids) + 1.0)(tf.constant([2, 3])), table.numpy()[[2, 3]] + 1)


def norms_have_groups() -> None:
    x = random.normal(size=(2, 4, 6)).astype("float32")
    for strided, grouped in ((True, x.reshape(2, 4, 3, 2)), (False, x.reshape(2, 4, 2, 3).swapaxes(2, 3))):
        expected = (grouped - grouped.mean((1, 2), keepdims=True)) / grouped.std((1, 2), keepdims=True)
        expected = expected if strided else expected.swapaxes(2, 3)
        layer = GroupNormalization(2, center=False, scale=False, epsilon=1e-12, strided_channel_grouping=strided)
        for training in (True, False):
            close(layer(x, training=training), expected.reshape(x.shape))
    rows = (x - x.mean(2, keepdims=True)) / x.std(2, keepdims=True)
    close(LayerNormalization(epsilon=1e-12)(x), rows)


def each_variable_may_have_its_own_update() -> None:
    """Descend (w × 1 + b − 2)² at 0.1, twice, from w = 1 and b = 0; the gradient of both is 2 (w + b − 2)."""
    config = IPUConfig()  # which asks for no number of IPUs: one
    config.configure_ipu_system()
    with IPUStrategyV1().scope():
        value = tf.keras.Input(1)
        model = tf.keras.Model(value, tf.keras.layers.Dense(1, kernel_initializer="ones")(value))
        model.set_gradient_accumulation_options(
            gradient_accumulation_steps_per_replica=4,
            gradient_accumulation_reduction_method=GradientAccumulationReductionMethod.MEAN,
            use_v2_gradient_accumulation_optimizer=True,
        )
        model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse", steps_per_execution=8)
        data = tf.data.Dataset.from_tensors(([1.0], [2.0])).repeat(8).batch(1, drop_remainder=True)
        model.fit(data, steps_per_epoch=8, verbose=0)
    close([float(weight) for weight in model.get_weights()], [1.32, 0.32])  # 1 + 0.2, then + 0.12


if __name__ == "__main__":
    lookup_has_a_gradient()
    outlined_functions_run()
    functions_without_compilation_run()
    norms_have_groups()
    each_variable_may_have_its_own_update()
    assert tf.keras.ipu.PipelineStage is not None
