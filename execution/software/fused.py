"""The work between two matrix products of an encoder layer, forward and backward in one pass each.

In mixed precision, and in float32 on CPUs. TensorFlow computes products fastest, but one elementwise operation after
the other. XLA fuses these into one loop, but its products on CPUs are slower, in bfloat16 by far. So each run of
elementwise work is a function that XLA compiles, between products that it does not compile. Every one has its own
gradient, which keeps few tensors from the forward pass and draws the dropout mask again. All arithmetic is float32,
except the softmax of the attention, which is TensorFlow's operation on scores in the format of the products.

B micro batch · S sequence · T = B·S tokens · A heads · D head size · H hidden · I inputs of a layer · O its outputs
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from execution import parts
from execution.software import dropout as dropouts
from execution.software import layers
from execution.software.devices import on_gpu
from execution.software.precision import WeightCopies, as_float32
from keras_extensions.backend import keras, tf

Differentiable = Tuple[Any, Callable[..., Any]]


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return tf.function(function, jit_compile=True, autograph=False)


class Mask(NamedTuple):
    """A dropout mask, drawn where it is needed from the micro batch's seed (2,) int32 and the layer's number."""

    rate: float
    seed: tf.Tensor
    layer: tf.Tensor


class Product(keras.layers.Dense):
    """x · W with float32 weights, in mixed precision with their copies; what owns it adds the bias."""

    def __init__(self, units: int, copies: WeightCopies, **options: Any):
        super().__init__(units, **options)
        self._copies = copies

    def build(self, input_shape: Any) -> None:
        shape = (int(input_shape[-1]), self.units)
        options = {"experimental_autocast": False}
        self.kernel = self.add_weight("kernel", shape, initializer=self.kernel_initializer, **options)
        self.bias = self.add_weight("bias", shape[1:], initializer="zeros", **options) if self.use_bias else None
        self.built = True

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return parts.shaped(self.product(x), x)

    def product(self, x: tf.Tensor) -> tf.Tensor:
        """Return the product (T, O) of two matrices, which TensorFlow fuses with a bias that follows."""
        return tf.matmul(parts.as_rows(x), self.matrix(x.dtype))

    def matrix(self, dtype: tf.DType) -> tf.Tensor:
        """Return the matrix (I, O) in the format of the products."""
        return self._copies.cast(self.kernel, dtype)

    def bias_or_zeros(self) -> tf.Tensor:
        """Return the bias (O,), float32; zeros if the layer has no bias."""
        return tf.zeros([self.units]) if self.bias is None else tf.convert_to_tensor(self.bias)


class Linear(Product):
    """x · W + bias."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        y = self.product(x)
        return parts.shaped(y if self.bias is None else tf.nn.bias_add(y, tf.cast(self.bias, x.dtype)), x)


def joined(dense: Sequence[Linear], x: tf.Tensor) -> tf.Tensor:
    """Return the outputs of layers for ``x`` (B, S, I) side by side, from one product: (B, S, outputs of all)."""
    matrix = tf.concat([layer.matrix(x.dtype) for layer in dense], axis=1)
    bias = tf.concat([layer.bias_or_zeros() for layer in dense], axis=0)
    y = tf.nn.bias_add(tf.matmul(parts.as_rows(x), matrix), tf.cast(bias, x.dtype))
    return tf.reshape(y, (tf.shape(x)[0], x.shape[1], matrix.shape[1]))


class LinearGelu(Product):
    """gelu(x · W + bias), of which the tanh approximation may be taken."""

    def __init__(self, units: int, approximate: bool, copies: WeightCopies, **options: Any):
        super().__init__(units, copies, **options)
        self._approximate = approximate

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return gelu(super().call(x), self.bias_or_zeros(), self._approximate)


class Dropout(dropouts.Dropout):
    """Dropout in one pass, whose backward pass draws the mask again."""

    def call(self, x: tf.Tensor, training: Optional[bool] = None) -> tf.Tensor:
        mask = self.mask()
        return x if mask is None else dropout(x, mask)

    def mask(self) -> Optional[Mask]:
        seed = self.seed
        return None if seed is None else Mask(self.rate, seed, tf.constant(self.number))


def dropout(x: tf.Tensor, mask: Mask) -> tf.Tensor:
    """Return ``x`` with the elements that the mask drops set to zero, and the others scaled."""
    rate, seed, layer = mask

    @tf.custom_gradient
    def operation(x: tf.Tensor) -> Differentiable:
        return _dropout(x, seed, layer, rate), lambda dy: _dropout(dy, seed, layer, rate)

    return operation(x)


@_compiled
def _dropout(x: tf.Tensor, seed: tf.Tensor, layer: tf.Tensor, rate: float) -> tf.Tensor:
    return tf.cast(dropouts.dropped(as_float32(x), rate, seed, layer), x.dtype)


class LayerNormalization(layers.LayerNormalization):
    """LayerNorm of one tensor or, in the same pass, of a sum."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return norm(x, *self._weights(), self.epsilon)

    def normalize_sum(self, residual: tf.Tensor, x: tf.Tensor, bias: tf.Tensor, mask: Optional[Mask]) -> tf.Tensor:
        """Return norm(residual + dropout(x + bias)); see :func:`norm`. The layer must have been built."""
        return norm(residual, *self._weights(), self.epsilon, (x, bias), mask)

    def _weights(self) -> Tuple[tf.Tensor, tf.Tensor]:
        return tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta)


class LinearDropoutNorm(parts.LinearDropoutNorm):
    """norm(residual + dropout(x · W + bias)), where all work after the product is one pass."""

    def build(self, input_shape: Any) -> None:
        with tf.name_scope(self.norm.name):
            self.norm.build((self.dense.units,))
        super().build(input_shape)

    def call(self, x: tf.Tensor, residual: tf.Tensor, training: Optional[bool] = None) -> tf.Tensor:
        return self.norm.normalize_sum(residual, self.dense(x), self.dense.bias_or_zeros(), self.dropout.mask())


class Attention(parts.Attention):
    """Attention whose backward pass draws the dropout mask again; see :func:`attention`."""

    def call(
        self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, bias: tf.Tensor, training: Optional[bool] = None
    ) -> tf.Tensor:
        return attention(query, key, value, bias, query.shape[-1] ** -0.5, self.dropout.mask())


def gelu(x: tf.Tensor, bias: tf.Tensor, approximate: bool) -> tf.Tensor:
    """Return gelu(x + bias) of products ``x`` (…, I) and a bias (I,), float32."""

    @tf.custom_gradient
    def operation(x: tf.Tensor, bias: tf.Tensor) -> Differentiable:
        y, slope = _gelu(x, bias, approximate)
        return y, lambda dy: _gelu_gradient(dy, slope)

    return operation(x, bias)


@_compiled
def _gelu(x: tf.Tensor, bias: tf.Tensor, approximate: bool) -> Tuple[tf.Tensor, tf.Tensor]:
    v = as_float32(x) + bias
    if approximate:
        root, cubic = np.float32(np.sqrt(2 / np.pi)), np.float32(0.044715)
        t = tf.tanh(root * (v + cubic * v * v * v))
        share = 0.5 * (1.0 + t)
        slope = share + 0.5 * v * (1.0 - t * t) * root * (1.0 + 3.0 * cubic * v * v)
    else:
        share = 0.5 * (1.0 + tf.math.erf(v * np.float32(np.sqrt(0.5))))
        slope = share + v * tf.exp(-0.5 * v * v) * np.float32(1 / np.sqrt(2 * np.pi))
    return tf.cast(v * share, x.dtype), tf.cast(slope, x.dtype)


@_compiled
def _gelu_gradient(dy: tf.Tensor, slope: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    dx = as_float32(dy) * as_float32(slope)
    return tf.cast(dx, dy.dtype), _sum_rows(dx)


def _sum_rows(x: tf.Tensor) -> tf.Tensor:
    """Return the sum (H,) of all rows of ``x`` (…, H) by halves; XLA on CPUs vectorizes that, not ``reduce_sum``."""
    rows = parts.as_rows(x)  # (T, H)
    if on_gpu():
        return tf.reduce_sum(rows, axis=0)
    while rows.shape[0] > 1:
        half, odd = divmod(rows.shape[0], 2)
        rows = tf.pad(rows, ((0, odd), (0, 0))) if odd else rows
        rows = rows[: half + odd] + rows[half + odd :]
    return rows[0]


def norm(
    residual: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    epsilon: float,
    added: Tuple[tf.Tensor, ...] = (),
    mask: Optional[Mask] = None,
) -> tf.Tensor:
    """Return norm(residual + dropout(x + bias)) of ``added`` x and bias, or norm(residual); (…, H) and (H,) float32."""
    rate, seed, layer = mask or (0.0, None, None)

    @tf.custom_gradient
    def operation(residual: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, *added: tf.Tensor) -> Differentiable:
        y, normalized, inverse_std = _norm(residual, gamma, beta, added, seed, layer, epsilon, rate)
        return y, lambda dy: _norm_gradient(dy, normalized, inverse_std, gamma, seed, layer, rate, bool(added))

    return operation(residual, gamma, beta, *added)


@_compiled
def _norm(
    residual: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    added: Tuple[tf.Tensor, ...],
    seed: Optional[tf.Tensor],
    layer: Optional[tf.Tensor],
    epsilon: float,
    rate: float,
) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the value, the normalised values, and the reciprocal of the standard deviation (…, 1)."""
    v = as_float32(residual)
    if added:
        x, bias = added
        v += dropouts.dropped(as_float32(x) + bias, rate, seed, layer)
    mean, variance = tf.nn.moments(v, axes=[-1], keepdims=True)
    inverse_std = tf.math.rsqrt(variance + epsilon)
    normalized = (v - mean) * inverse_std
    return tf.cast(normalized * gamma + beta, residual.dtype), tf.cast(normalized, residual.dtype), inverse_std


@_compiled
def _norm_gradient(
    dy: tf.Tensor,
    normalized: tf.Tensor,
    inverse_std: tf.Tensor,
    gamma: tf.Tensor,
    seed: Optional[tf.Tensor],
    layer: Optional[tf.Tensor],
    rate: float,
    has_added: bool,
) -> Tuple[tf.Tensor, ...]:
    upstream, n = as_float32(dy), as_float32(normalized)
    g = upstream * gamma
    means = [tf.reduce_mean(values, -1, keepdims=True) for values in (g, g * n)]
    dv = inverse_std * (g - means[0] - n * means[1])
    gradients = (tf.cast(dv, dy.dtype), _sum_rows(upstream * n), _sum_rows(upstream))
    if not has_added:
        return gradients
    dx = dropouts.dropped(dv, rate, seed, layer)
    return (*gradients, tf.cast(dx, dy.dtype), _sum_rows(dx))


def cross_entropy(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the negative log-likelihood (…), float32, of integer labels (…), given logits (…, classes)."""

    @tf.custom_gradient
    def operation(scores: tf.Tensor) -> Differentiable:
        loss, normalizer = _cross_entropy(scores, labels)
        return loss, lambda upstream: _cross_entropy_gradient(upstream, scores, labels, normalizer)

    return operation(scores)


@_compiled
def _cross_entropy(scores: tf.Tensor, labels: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """Return the loss, and the logarithm of the sum of all exponentials."""
    values = as_float32(scores)
    largest = tf.reduce_max(values, -1)
    normalizer = largest + tf.math.log(tf.reduce_sum(tf.exp(values - largest[..., None]), -1))
    return normalizer - tf.gather(values, labels, batch_dims=labels.shape.rank), normalizer


@_compiled
def _cross_entropy_gradient(
    upstream: tf.Tensor, scores: tf.Tensor, labels: tf.Tensor, normalizer: tf.Tensor
) -> tf.Tensor:
    probabilities = tf.exp(as_float32(scores) - normalizer[..., None])
    one_hot = tf.cast(tf.range(scores.shape[-1], dtype=labels.dtype) == labels[..., None], tf.float32)
    return tf.cast((probabilities - one_hot) * upstream[..., None], scores.dtype)


def attention(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, bias: tf.Tensor, scale: float, mask: Optional[Mask]
) -> tf.Tensor:
    """Return dropout(softmax(Q·Kᵀ · scale + bias))·V, (B, A, S, D) each; bias (B, 1, 1 or S, S) has no gradient."""
    rate, seed, layer = mask or (0.0, None, None)
    factor = tf.constant(scale, query.dtype)

    @tf.custom_gradient
    def operation(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> Differentiable:
        # The scores are not used elsewhere, so that TensorFlow fuses product, scale and bias into one operation.
        softmax = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) * factor + bias)  # (B, A, S, S)
        weights = softmax if mask is None else _dropout(softmax, seed, layer, rate)

        def gradient(upstream: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            dweights = tf.matmul(upstream, value, transpose_b=True)
            dscores = _softmax_gradient(dweights, softmax, weights, scale)
            dvalue = tf.matmul(weights, upstream, transpose_a=True)
            return tf.matmul(dscores, key), tf.matmul(dscores, query, transpose_a=True), dvalue

        return tf.matmul(weights, value), gradient

    return operation(query, key, value)


@_compiled
def _softmax_gradient(dweights: tf.Tensor, softmax: tf.Tensor, weights: tf.Tensor, scale: float) -> tf.Tensor:
    """Return the gradient of the unscaled scores, given that of the weights after dropout."""
    products = as_float32(weights) * as_float32(dweights)
    sums = tf.reduce_sum(products, -1, keepdims=True)
    return tf.cast((products - as_float32(softmax) * sums) * scale, softmax.dtype)
