"""Layers and operations on stock TensorFlow for which IPUs have their own, and the seeds of dropout masks.

V  vocabulary
H  hidden size
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, Optional, Tuple, Union

import numpy as np

from execution.software.precision import FiniteCheck, as_float32
from keras_extensions.backend import keras, tf

# Named, because TensorFlow's default generator gives other numbers when compiled with XLA.
GENERATOR = "philox"

Differentiable = Tuple[tf.Tensor, Callable[..., Any]]  # a value and the function that computes its gradient


# Dropout. Masks are a function of (seed of the run, update, micro batch, layer, element), so a run that is resumed,
# recomputed, compiled, or split differently over devices draws the same ones.


class DropoutSeeds:
    """Gives the seed of the current micro batch to the dropout layers of a model."""

    def __init__(self) -> None:
        self._seed: Optional[tf.Tensor] = None
        self._layers = 0

    def register(self) -> int:
        """Return the number of a new dropout layer, in the order of construction."""
        self._layers += 1
        return self._layers

    @contextlib.contextmanager
    def using(self, seed: tf.Tensor) -> Iterator[None]:
        """Within the block, derive masks from ``seed``, which is (2,) int32."""
        outer, self._seed = self._seed, seed
        try:
            yield
        finally:
            self._seed = outer

    @property
    def current(self) -> Optional[tf.Tensor]:
        """The seed (2,) of the micro batch; None outside of :meth:`using`, where there is no dropout."""
        return self._seed


def micro_batch_seed(run_seed: int, update: tf.Tensor, micro_batch: tf.Tensor) -> tf.Tensor:
    """Return the seed of one micro batch of one update, (2,) int32."""
    seed = tf.constant([run_seed & 0x7FFFFFFF, 0x5EED], tf.int32)
    return fold_in(fold_in(seed, update), micro_batch)


def fold_in(seed: tf.Tensor, number: Union[int, tf.Tensor]) -> tf.Tensor:
    """Return a different seed (2,) for each number."""
    return tf.random.experimental.stateless_fold_in(seed, tf.cast(number, tf.int32), alg=GENERATOR)


def keep_mask(shape: tf.Tensor, rate: float, seed: tf.Tensor) -> tf.Tensor:
    """Return a bool tensor whose elements are independently True with probability 1 - ``rate``, to within 2⁻³².

    Each element is a hash of its number and the seed: two rounds of multiply and shift, the finalizer of MurmurHash3.
    XLA fuses these few integer operations into the layer and repeats them in the backward pass, whereas it would write
    the numbers of TensorFlow's generator to memory and keep them.

    Args:
        shape: shape of the mask, an int32 vector.
        rate: dropout rate.
        seed: (2,) int32.
    """
    start, stir = tf.unstack(tf.bitcast(seed, tf.uint32))
    number = tf.cast(tf.range(tf.reduce_prod(shape)), tf.uint32)
    mixed = number * np.uint32(0x9E3779B1) + start
    mixed = _xor_shifted(mixed, 16) * np.uint32(0x85EBCA6B) + stir
    mixed = _xor_shifted(mixed, 13) * np.uint32(0xC2B2AE35)
    return tf.reshape(_xor_shifted(mixed, 16) >= np.uint32(round(rate * 2**32)), shape)


def _xor_shifted(words: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(words, tf.bitwise.right_shift(words, np.uint32(bits)))


class Dropout(keras.layers.Layer):
    """Dropout whose mask follows from the micro batch's seed and this layer's number.

    Args:
        rate: share of the elements that become zero.
        seeds: gives the seed.
        name: name of the layer.
    """

    def __init__(self, rate: float, seeds: DropoutSeeds, name: str = "dropout"):
        super().__init__(name=name)
        self.rate = rate
        self._seeds = seeds
        self.number = seeds.register()

    @property
    def seed(self) -> Optional[tf.Tensor]:
        """The seed (2,) of the current micro batch; None where nothing is dropped."""
        return self._seeds.current if self.rate else None

    def call(self, x: tf.Tensor, training: Optional[bool] = None) -> tf.Tensor:
        if self.seed is None:
            return x
        keep = keep_mask(tf.shape(x), self.rate, fold_in(self.seed, self.number))
        return tf.where(keep, tf.cast(as_float32(x) * (1.0 / (1.0 - self.rate)), x.dtype), tf.zeros([], x.dtype))


# Operations that narrow formats would spoil are computed in float32, whatever the format of their arguments.


class LayerNormalization(keras.layers.Layer):
    """(x - mean) / √(variance + ε) · gamma + beta over the last axis, computed in float32.

    Args:
        epsilon: ε.
        name: name of the layer.
        check: applied to the result.
    """

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
    """Return x·Φ(x), computed in float32: in narrow formats 1 + erf has no digits left for negative ``x``.

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
    """Return the softmax over the last axis, computed in float32."""
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

    The factors are reshaped to two matrices, because the gradient of a batched product would hold a copy of the table
    for each sample. Unlike on IPUs, the product is computed at once.
    """
    rows = tf.reshape(x, (-1, x.shape[-1]))
    product = tf.matmul(rows, tf.cast(table, x.dtype), transpose_b=True)
    return tf.reshape(product, tf.concat([tf.shape(x)[:-1], [table.shape[0]]], axis=0))
