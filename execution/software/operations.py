"""Operations with gradients of their own, on stock TensorFlow.

V vocabulary · H hidden
"""

from __future__ import annotations

import numpy as np

from keras_extensions.backend import tf


@tf.custom_gradient
def embedding_lookup(table: tf.Tensor, ids: tf.Tensor):
    """Rows ``ids`` of ``table`` (V, H), with a dense gradient.

    The tied masked-LM head needs a dense gradient of the table anyway; summing rows straight into it is faster than
    TensorFlow's sparse slices.
    """
    rows = tf.shape(table)[0]
    width = table.shape[-1]

    def gradient(upstream: tf.Tensor):
        flat = tf.reshape(upstream, (-1, width))
        return tf.math.unsorted_segment_sum(flat, tf.reshape(ids, [-1]), rows), None

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
    """
    root = tf.cast(np.sqrt(0.5), x.dtype)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        cumulative = 0.5 * (1.0 - tf.math.erf(-x * root))
        density = tf.exp(-0.5 * tf.square(x)) * tf.cast(1.0 / np.sqrt(2.0 * np.pi), x.dtype)
        return upstream * (cumulative + x * density)

    return 0.5 * x * (1.0 + tf.math.erf(x * root)), gradient
