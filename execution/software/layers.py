"""Layers and operations on stock TensorFlow for which IPUs have their own.

V  vocabulary
H  hidden size
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import numpy as np

from execution.parts import as_rows, shaped
from execution.software.precision import FiniteCheck, as_float32
from keras_extensions.backend import keras, tf

Differentiable = Tuple[tf.Tensor, Callable[..., Any]]  # a value and the function that computes its gradient


# Operations that need more than low precision are computed in float32, whatever the format of their arguments.


class LayerNormalization(keras.layers.Layer):
    """(x - mean) / √(variance + ε) · gamma + beta over the last axis, computed in float32 and then checked."""

    def __init__(self, epsilon: float, name: str = "norm", check: Optional[FiniteCheck] = None):
        super().__init__(name=name)
        self.epsilon = epsilon
        self._check = check or FiniteCheck(False)

    def build(self, input_shape: Any) -> None:
        size = (input_shape[-1],)
        # In mixed precision, weights are float32 and used as such.
        self.gamma = self.add_weight("gamma", size, initializer="ones", experimental_autocast=False)
        self.beta = self.add_weight("beta", size, initializer="zeros", experimental_autocast=False)
        super().build(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        values = as_float32(x)
        mean, variance = tf.nn.moments(values, axes=[-1], keepdims=True)
        normal = (values - mean) * tf.math.rsqrt(variance + self.epsilon)
        return self._check(tf.cast(normal * as_float32(self.gamma) + as_float32(self.beta), x.dtype))


@tf.custom_gradient
def exact_gelu(x: tf.Tensor) -> Differentiable:
    """Return x·Φ(x), computed in float32: in low precision 1 + erf has no digits left for negative ``x``.

    The gradient Φ(x) + x·φ(x) needs only ``x`` from the forward pass. Automatic differentiation would keep erf as well,
    a quarter of all activations of BERT-base. The gradient takes erf of the negated argument for the same reason: XLA
    would otherwise see one value in both passes, and keep it.
    """
    root = tf.cast(np.sqrt(0.5), tf.float32)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        values = as_float32(x)
        cumulative = 0.5 * (1.0 - tf.math.erf(-values * root))
        density = tf.exp(-0.5 * tf.square(values)) * tf.cast(1.0 / np.sqrt(2.0 * np.pi), tf.float32)
        return tf.cast(as_float32(upstream) * (cumulative + values * density), x.dtype)

    values = as_float32(x)
    return tf.cast(0.5 * values * (1.0 + tf.math.erf(values * root)), x.dtype), gradient


def approximate_gelu(x: tf.Tensor) -> tf.Tensor:
    """Return the tanh approximation of x·Φ(x), computed in float32: x³ overflows float16 from x = 40."""
    return tf.cast(tf.nn.gelu(as_float32(x), approximate=True), x.dtype)


def softmax(scores: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.nn.softmax(as_float32(scores)), scores.dtype)


@tf.custom_gradient
def embedding_lookup(table: tf.Tensor, ids: tf.Tensor) -> Differentiable:
    """Return the rows of ``table`` (V, H) with the numbers ``ids`` (…), as (…, H); the table's gradient is dense.

    The masked-LM head shares the table and needs a dense gradient anyway, so rows are summed into it directly, which is
    faster than TensorFlow's ``IndexedSlices``. The sum is computed in float32.
    """
    rows = tf.shape(table)[0]
    width = table.shape[-1]

    def gradient(upstream: tf.Tensor) -> Tuple[tf.Tensor, None]:
        flat = as_float32(tf.reshape(upstream, (-1, width)))
        return tf.cast(tf.math.unsorted_segment_sum(flat, tf.reshape(ids, [-1]), rows), upstream.dtype), None

    return tf.gather(table, ids), gradient


def serialized_matmul(x: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
    """Multiply ``x`` (…, H) by the transpose of ``table`` (V, H); returns (…, V).

    The factors are reshaped to two matrices, because the gradient of a batched product would contain a copy of the
    table for each sample. Unlike on IPUs, the product is computed at once.
    """
    return shaped(tf.matmul(as_rows(x), tf.cast(table, x.dtype), transpose_b=True), x)
