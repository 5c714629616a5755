"""Dropout, and how its masks are drawn on stock TensorFlow.

A mask is a function of the run's seed, the update, the micro batch, the layer and the element. Therefore a run that is
resumed, recomputed, compiled, or split differently over devices draws the same masks.
"""

from __future__ import annotations

import contextlib
from typing import Iterator, Optional, Union

import numpy as np

from execution.software.precision import as_float32
from keras_extensions.backend import keras, tf

# Set explicitly, because TensorFlow's default generator gives other numbers when compiled with XLA.
GENERATOR = "philox"


class DropoutSeeds:
    """Provides the dropout layers of a model with the seed of the current micro batch."""

    def __init__(self) -> None:
        self.current: Optional[tf.Tensor] = None  # the seed (2,) of the micro batch; None, without dropout, elsewhere
        self._layers = 0

    def register(self) -> int:
        """Return the number of a new dropout layer, in the order of construction."""
        self._layers += 1
        return self._layers

    @contextlib.contextmanager
    def using(self, seed: tf.Tensor) -> Iterator[None]:
        """Within the block, derive masks from ``seed``, which is (2,) int32."""
        outer, self.current = self.current, seed
        try:
            yield
        finally:
            self.current = outer


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

    Rows and columns are numbered separately, because TensorFlow evaluates expressions without inputs when it compiles:
    the numbers of all elements would become constants of the program, of several bytes per element.

    The shape is an int32 vector of at least one dimension, the seed (2,) int32.
    """
    start, key = tf.unstack(tf.bitcast(seed, tf.uint32))
    row, column = (tf.cast(tf.range(count), tf.uint32) for count in (tf.reduce_prod(shape[:-1]), shape[-1]))
    step = np.uint32(0x9E3779B1)
    mixed = row[:, None] * (tf.cast(shape[-1], tf.uint32) * step) + (column * step + start)  # number · step + start
    mixed = _xor_shifted(mixed, 16) * np.uint32(0x85EBCA6B) + key
    mixed = _xor_shifted(mixed, 13) * np.uint32(0xC2B2AE35)
    return tf.reshape(_xor_shifted(mixed, 16) >= np.uint32(round(rate * 2**32)), shape)


def _xor_shifted(words: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(words, tf.bitwise.right_shift(words, np.uint32(bits)))


def dropped(x: tf.Tensor, rate: float, seed: Optional[tf.Tensor], layer: Union[int, tf.Tensor, None]) -> tf.Tensor:
    """Return ``x``, float32, with a share ``rate`` of its elements zeroed and the others scaled, if there is a seed."""
    if seed is None:
        return x
    keep = keep_mask(tf.shape(x), rate, fold_in(seed, layer))
    return tf.where(keep, x * (1.0 / (1.0 - rate)), tf.zeros([], x.dtype))


class Dropout(keras.layers.Layer):
    """Dropout whose mask follows from the micro batch's seed and this layer's number."""

    def __init__(self, rate: float, seeds: DropoutSeeds, name: str = "dropout"):
        super().__init__(name=name)
        self.rate = rate
        self._seeds = seeds
        self.number = seeds.register()

    @property
    def seed(self) -> Optional[tf.Tensor]:
        """The seed (2,) of the current micro batch; None without dropout."""
        return self._seeds.current if self.rate else None

    def call(self, x: tf.Tensor, training: Optional[bool] = None) -> tf.Tensor:
        if self.seed is None:
            return x
        return tf.cast(dropped(as_float32(x), self.rate, self.seed, self.number), x.dtype)
