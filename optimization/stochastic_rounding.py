"""Rounding float32 to a narrower format at random, so that the mean is right.

A float16 weight of 1 has neighbours 2⁻¹⁰ away: an update of 1e-4 rounds to nothing, every time. Rounded up with
probability (x - low) / (high - low), the update is there on average (Gupta et al. 2015, section 3; Graphcore's hardware
does the same).
"""

from __future__ import annotations

from typing import Dict, NamedTuple

from keras_extensions.backend import tf


class NarrowFormat(NamedTuple):
    """Of a floating format: stored bits of the significand, and the exponent of its smallest normal number."""

    significand_bits: int
    smallest_exponent: int


FORMATS: Dict[tf.DType, NarrowFormat] = {tf.float16: NarrowFormat(10, -14), tf.bfloat16: NarrowFormat(7, -126)}

_EXPONENT_BIAS, _STORED_BITS = 127, 23  # of float32


def stochastic_round(values: tf.Tensor, dtype: tf.DType, seed: tf.Tensor) -> tf.Tensor:
    """``values`` in ``dtype``, each rounded to one of its two neighbours there, unbiased.

    Args:
        values: float32, any shape. Numbers that ``dtype`` can hold stay as they are; so do infinities and NaN.
        dtype: float16 or bfloat16; float32 gives the values back.
        seed: (2,) int32; the same seed gives the same result.

    Example:
        >>> halves = stochastic_round(tf.fill([1000], 1.0 + 2.0**-12), tf.float16, [1, 2])  # doctest: +SKIP
        >>> float(tf.reduce_mean(tf.cast(halves, tf.float32)))  # a quarter are 1 + 2**-10
        1.00024…
    """
    if dtype == tf.float32:
        return values
    step = spacing(values, FORMATS[dtype])
    scaled = values / step
    low = tf.floor(scaled)
    uniform = tf.random.stateless_uniform(tf.shape(values), seed, alg="philox")
    rounded = (low + tf.cast(uniform < scaled - low, tf.float32)) * step
    return tf.cast(tf.where(tf.math.is_finite(values), rounded, values), dtype)


def spacing(values: tf.Tensor, narrow: NarrowFormat) -> tf.Tensor:
    """Distance of neighbours in the narrow format, around each float32 value; a power of two."""
    exponent = tf.bitwise.right_shift(tf.bitcast(tf.abs(values), tf.int32), _STORED_BITS) - _EXPONENT_BIAS
    exponent = tf.maximum(exponent, narrow.smallest_exponent) - narrow.significand_bits
    # A spacing below float32's smallest normal number would be flushed to 0 on many machines.
    exponent = tf.clip_by_value(exponent, 1 - _EXPONENT_BIAS, _EXPONENT_BIAS)
    return tf.bitcast(tf.bitwise.left_shift(exponent + _EXPONENT_BIAS, _STORED_BITS), tf.float32)
