"""Random numbers that depend on (seed, update, micro batch, layer) and on nothing else.

A run that is resumed, recomputed, or split differently over devices draws the same dropout masks.
"""

from __future__ import annotations

import contextlib
from typing import Iterator, Optional, Union

import numpy as np

from keras_extensions.backend import tf

# Named, because left to itself TensorFlow draws other numbers compiled than not.
ALGORITHM = "philox"


class SeedScope:
    """Hands the seed of the current micro batch to the layers that are traced inside ``using``."""

    def __init__(self) -> None:
        self._seed: Optional[tf.Tensor] = None
        self._layers = 0

    def register(self) -> int:
        """A number for a new random layer, by order of construction."""
        self._layers += 1
        return self._layers

    @contextlib.contextmanager
    def using(self, seed: tf.Tensor) -> Iterator[None]:
        """Layers called in this context draw from ``seed``, a (2,) int32 tensor."""
        outer, self._seed = self._seed, seed
        try:
            yield
        finally:
            self._seed = outer

    def layer_seed(self, layer: int) -> Optional[tf.Tensor]:
        """The seed (2,) of one layer, or None outside ``using`` (inference, model construction)."""
        if self._seed is None:
            return None
        return fold_in(self._seed, layer)


def micro_batch_seed(run_seed: int, update: tf.Tensor, micro_batch: tf.Tensor) -> tf.Tensor:
    """The seed (2,) int32 of one micro batch of one update."""
    seed = tf.constant([run_seed & 0x7FFFFFFF, 0x5EED], tf.int32)
    return fold_in(fold_in(seed, update), micro_batch)


def fold_in(seed: tf.Tensor, number: Union[int, tf.Tensor]) -> tf.Tensor:
    """Another seed (2,) for each ``number``."""
    return tf.random.experimental.stateless_fold_in(seed, tf.cast(number, tf.int32), alg=ALGORITHM)


def keep_mask(shape: tf.Tensor, rate: float, seed: tf.Tensor) -> tf.Tensor:
    """True with probability 1 - ``rate``, to within 2⁻³², independently for each element.

    A hash of the element's number and the seed, in two rounds of multiply and shift (the finalizer of MurmurHash3):
    a few integer operations that XLA fuses into the layer and repeats in the backward pass, where numbers from
    TensorFlow's generator are written to memory and kept.
    """
    start, stir = tf.unstack(tf.bitcast(seed, tf.uint32))
    number = tf.cast(tf.range(tf.reduce_prod(shape)), tf.uint32)
    mixed = number * np.uint32(0x9E3779B1) + start
    mixed = _shift_in(mixed, 16) * np.uint32(0x85EBCA6B) + stir
    mixed = _shift_in(mixed, 13) * np.uint32(0xC2B2AE35)
    return tf.reshape(_shift_in(mixed, 16) >= np.uint32(round(rate * 2**32)), shape)


def _shift_in(words: tf.Tensor, bits: int) -> tf.Tensor:
    """``words`` with their upper bits mixed into the lower ones."""
    return tf.bitwise.bitwise_xor(words, tf.bitwise.right_shift(words, np.uint32(bits)))
