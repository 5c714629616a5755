"""The platform of models that only predict: layers in the form that TensorFlow fuses in graphs on CPUs.

Its graph optimizer makes one operation of oneDNN of a product, its bias and the GeLU or the sum that follows, one of a
LayerNorm, and one of a product with its scale and mask. Each computes in float32 and rounds once. A layer that is
called without a graph is the plain one, because nothing is fused there, and a GeLU in bfloat16 would lose digits.

oneDNN's LayerNorm and transposition take some 100 µs to begin with. In a graph that is known to have one sequence, the
ten operations of a plain LayerNorm are quicker, and so is a transposition of integers, which oneDNN does not compute.

B batch · S sequence · T = B·S tokens · A heads · D head size · I inputs of a layer · O its outputs · H hidden
"""

from __future__ import annotations

from typing import Any, Optional, Tuple, Type

from execution import parts
from execution.software import layers
from execution.software.platform import SoftwarePlatform
from keras_extensions.backend import keras, tf


def is_fused() -> bool:
    """Return whether this TensorFlow fuses: gelu(-3) is then rounded to bfloat16 once, from -0.00405."""
    matrix, bias = tf.eye(8, dtype=tf.bfloat16), tf.zeros(8, tf.bfloat16)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 8), tf.bfloat16)])
    def compute(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.gelu(tf.nn.bias_add(tf.matmul(x, matrix), bias), approximate=False)

    result = tf.cast(compute(tf.fill((2, 8), tf.cast(-3.0, tf.bfloat16))), tf.float32)
    return bool(tf.reduce_all(tf.abs(result + 0.00405) < 2e-5))


class InferencePlatform(SoftwarePlatform):
    """A CPU whose TensorFlow fuses, for models that are never trained; without XLA.

    Args:
        constant_weights: whether graphs hold matrices as constants, so that their values when a graph is traced count.
        options: those of :class:`SoftwarePlatform`.
    """

    only_predicts = True

    def __init__(self, constant_weights: bool = False, **options: Any):
        super().__init__(**options)
        self._constant_weights = constant_weights

    def layer_normalization(self, epsilon: float, name: str) -> keras.layers.Layer:
        return LayerNormalization(epsilon, name=name)

    def dense(self, units: int, use_bias: bool, initializer: str, name: str) -> keras.layers.Layer:
        return Linear(units, self._constant_weights, use_bias=use_bias, kernel_initializer=initializer, name=name)

    def linear_gelu(self, units: int, approximate: bool, initializer: str, name: str) -> keras.layers.Layer:
        return LinearGelu(units, self._constant_weights, approximate, kernel_initializer=initializer, name=name)

    def linear_before_norm(
        self, units: int, use_bias: bool, initializer: str
    ) -> Tuple[Type[parts.LinearDropoutNorm], keras.layers.Layer]:
        return LinearDropoutNorm, self.dense(units, use_bias, initializer, "dense")

    def attention(self, rate: float, name: str) -> parts.Attention:
        return Attention(self.dropout(rate, name="dropout"), self.softmax, name=name)

    def swap_tokens_and_heads(self, x: tf.Tensor) -> tf.Tensor:
        if x.shape[0] != 1 or tf.executing_eagerly():
            return super().swap_tokens_and_heads(x)
        integers = tf.int32 if x.dtype == tf.float32 else tf.int16
        return tf.bitcast(super().swap_tokens_and_heads(tf.bitcast(x, integers)), x.dtype)


class Linear(keras.layers.Dense):
    """x · W + bias."""

    def __init__(self, units: int, constant_weights: bool, **options: Any):
        super().__init__(units, **options)
        self._constant_weights = constant_weights

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return parts.shaped(self.rows(x), x)

    def rows(self, x: tf.Tensor) -> tf.Tensor:
        """Return the outputs for ``x`` (…, I) as a matrix (T, O)."""
        y = tf.matmul(parts.as_rows(x), self._matrix())
        return y if self.bias is None else tf.nn.bias_add(y, self.bias)

    def _matrix(self) -> Any:
        if not self._constant_weights or tf.executing_eagerly():
            return self.kernel
        with tf.init_scope():
            values = tf.bitcast(self.kernel, tf.int16).numpy()  # of bfloat16, a graph would hold four bytes
        return tf.bitcast(tf.constant(values), self.kernel.dtype)


class LinearGelu(Linear):
    """gelu(x · W + bias), of which the tanh approximation may be taken."""

    def __init__(self, units: int, constant_weights: bool, approximate: bool, **options: Any):
        super().__init__(units, constant_weights, **options)
        self._approximate = approximate

    def call(self, x: tf.Tensor) -> tf.Tensor:
        y = self.rows(x)
        if not tf.executing_eagerly():
            y = tf.nn.gelu(y, self._approximate)
        else:
            y = layers.approximate_gelu(y) if self._approximate else layers.exact_gelu(y)
        return parts.shaped(y, x)


class LinearDropoutNorm(parts.LinearDropoutNorm):
    """norm(residual + x · W + bias), of (B, S, I) and (B, S, H)."""

    def build(self, input_shape: Any) -> None:
        with tf.name_scope(self.dense.name):
            self.dense.build(input_shape)
        super().build(input_shape)

    def call(self, x: tf.Tensor, residual: tf.Tensor, training: Optional[bool] = None) -> tf.Tensor:
        total = tf.reshape(residual, (-1, self.dense.units)) + self.dense.rows(x)
        return self.norm(parts.shaped(total, x))


class LayerNormalization(layers.LayerNormalization):
    """LayerNorm, in a graph as the normalisation of a batch that has a channel for each token."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        if tf.executing_eagerly() or x.shape[0] == 1:
            return super().call(x)
        shape = tf.shape(x)
        tokens = tf.reduce_prod(shape[:-1])
        normal, *_ = tf.raw_ops.FusedBatchNormV3(
            x=tf.reshape(x, tf.stack([1, tokens, shape[-1], 1])),
            scale=tf.ones([tokens]),
            offset=tf.zeros([tokens]),
            mean=[],
            variance=[],
            epsilon=self.epsilon,
            data_format="NCHW",
            is_training=True,
        )
        y = tf.reshape(normal, shape) * self.gamma + self.beta
        y.set_shape(x.shape)
        return y


class Attention(parts.Attention):
    """softmax(Q·Kᵀ / √D + bias)·V."""

    def call(
        self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, bias: tf.Tensor, training: Optional[bool] = None
    ) -> tf.Tensor:
        scale = tf.constant(query.shape[-1] ** -0.5, query.dtype)
        return tf.matmul(tf.nn.softmax(tf.matmul(query, key, transpose_b=True) * scale + bias), value)
