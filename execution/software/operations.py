"""Operations with gradients of their own, on stock TensorFlow.

V vocabulary · H hidden
"""

from __future__ import annotations

import numpy as np

from execution.software.precision import wide
from keras_extensions.backend import tf


@tf.custom_gradient
def embedding_lookup(table: tf.Tensor, ids: tf.Tensor):
    """Rows ``ids`` of ``table`` (V, H), with a dense gradient.

    The tied masked-LM head needs a dense gradient of the table anyway; summing rows straight into it is faster than
    TensorFlow's sparse slices. The sum is float32.
    """
    rows = tf.shape(table)[0]
    width = table.shape[-1]

    def gradient(upstream: tf.Tensor):
        flat = wide(tf.reshape(upstream, (-1, width)))
        return tf.cast(tf.math.unsorted_segment_sum(flat, tf.reshape(ids, [-1]), rows), upstream.dtype), None

    return tf.gather(table, ids), gradient


def serialized_matmul(x: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
    """``x`` (…, H) times the transpose of ``table`` (V, H).

    One product of two matrices: as a batched product, its gradient would hold a copy of the table for each sample.
    """
    rows = tf.reshape(x, (-1, x.shape[-1]))
    product = tf.matmul(rows, tf.cast(table, x.dtype), transpose_b=True)
    return tf.reshape(product, tf.concat([tf.shape(x)[:-1], [table.shape[0]]], axis=0))


@tf.custom_gradient
def exact_gelu(x: tf.Tensor):
    """x·Φ(x), with a gradient that keeps ``x`` alone from the forward pass: Φ(x) + x·φ(x).

    Automatic differentiation keeps erf as well, which at BERT-base is a quarter of all activations. For the same reason
    the gradient takes erf of the negated argument: XLA would see one value in both passes, and keep it.

    Computed in float32: in narrow formats 1 + erf has no digits left for negative ``x``.
    """
    root = tf.cast(np.sqrt(0.5), tf.float32)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        values = wide(x)
        cumulative = 0.5 * (1.0 - tf.math.erf(-values * root))
        density = tf.exp(-0.5 * tf.square(values)) * tf.cast(1.0 / np.sqrt(2.0 * np.pi), tf.float32)
        return tf.cast(wide(upstream) * (cumulative + values * density), x.dtype)

    values = wide(x)
    return tf.cast(0.5 * values * (1.0 + tf.math.erf(values * root)), x.dtype), gradient


def approximate_gelu(x: tf.Tensor) -> tf.Tensor:
    """The tanh approximation, in float32: x³ overflows float16 from x = 40."""
    return tf.cast(tf.nn.gelu(wide(x), approximate=True), x.dtype)


def softmax(scores: tf.Tensor) -> tf.Tensor:
    """Softmax over the last axis, in float32 whatever the format of ``scores``."""
    return tf.cast(tf.nn.softmax(wide(scores)), scores.dtype)
