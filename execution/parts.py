"""Parts of an encoder layer that a platform may replace as a whole, composed of plain layers.

A platform that computes a part in fewer steps returns a layer of its own with the same weights under the same names.

B micro batch · A heads · S tokens of a row · D head size · I inputs · H outputs
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from keras_extensions.backend import keras, tf


def as_rows(x: tf.Tensor) -> tf.Tensor:
    """Return ``x`` (…, I) as a matrix with a row for each token, (tokens, I)."""
    return tf.reshape(x, (-1, x.shape[-1]))


def shaped(y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Return rows ``y`` (tokens, outputs) in the shape of ``x`` (…, inputs), as (…, outputs)."""
    outputs = y.shape[-1]
    y = tf.reshape(y, tf.concat([tf.shape(x)[:-1], [outputs]], axis=0))
    y.set_shape((*x.shape[:-1], outputs))
    return y


class LinearDropoutNorm(keras.layers.Layer):
    """norm(residual + dropout(dense(x)))."""

    def __init__(
        self,
        dense: keras.layers.Layer,
        dropout: keras.layers.Layer,
        norm: keras.layers.Layer,
        outlined: Callable[[Callable[..., Any]], Callable[..., Any]],
        name: str,
    ):
        super().__init__(name=name)
        self.dense = dense
        self.dropout = dropout
        self.norm = norm
        self._outlined = outlined

    def call(
        self,
        x: tf.Tensor,  # (B, S, I)
        residual: tf.Tensor,  # (B, S, H)
        training: Optional[bool] = None,
    ) -> tf.Tensor:
        # Code that draws random numbers is compiled again for each call, so only the product is outlined.
        return self.norm(residual + self.dropout(self._outlined(self.dense)(x), training=training))  # (B, S, H)


class Attention(keras.layers.Layer):
    """dropout(softmax(Q·Kᵀ / √D + bias))·V (Vaswani et al. 2017, section 3.2.1)."""

    def __init__(self, dropout: keras.layers.Layer, softmax: Callable[[tf.Tensor], tf.Tensor], name: str):
        super().__init__(name=name)
        self.dropout = dropout
        self._softmax = softmax

    def call(
        self,
        query: tf.Tensor,  # (B, A, S, D), as are key and value
        key: tf.Tensor,
        value: tf.Tensor,
        bias: tf.Tensor,  # (B, 1, 1 or S, S)
        training: Optional[bool] = None,
    ) -> tf.Tensor:
        scale = tf.cast(query.shape[-1] ** -0.5, query.dtype)
        scores = tf.matmul(query * scale, key, transpose_b=True) + bias  # (B, A, S, S)
        return tf.matmul(self.dropout(self._softmax(scores), training=training), value)  # (B, A, S, D)
