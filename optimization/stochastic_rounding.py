"""Stochastic rounding of float32 to float16 or bfloat16, with an exact mean.

The neighbours of a float16 weight of 1 are 2⁻¹⁰ away, so rounding to nearest loses every update of 1e-4. Rounding up
with probability (x - low) / (high - low) keeps the update on average (Gupta et al. 2015, section 3), as Graphcore's
hardware does.
"""

from __future__ import annotations

import numpy as np

from keras_extensions.backend import tf

# Number of stored significand bits, and exponent of the smallest normal number.
FORMATS = {tf.float16: (10, -14), tf.bfloat16: (7, -126)}
_EXPONENT_BIAS, _STORED_BITS = 127, 23  # of float32


def stochastic_round(values: tf.Tensor, dtype: tf.DType, seed: tf.Tensor) -> tf.Tensor:
    """Round float32 values to one of their two neighbours in float16 or bfloat16, without bias, by a seed (2,) int32.

    Numbers that ``dtype`` represents exactly, infinities and NaN are not changed.
    """
    step = spacing(values, *FORMATS[dtype])
    scaled = values / step
    low = tf.floor(scaled)
    uniform = tf.random.stateless_uniform(tf.shape(values), seed, alg="philox")
    rounded = (low + tf.cast(uniform < scaled - low, tf.float32)) * step
    return tf.cast(tf.where(tf.math.is_finite(values), rounded, values), dtype)


def spacing(values: tf.Tensor, significand_bits: int, smallest_exponent: int) -> tf.Tensor:
    """Return the distance between a format's neighbours of each float32 value, a power of two."""
    # Unsigned, because TensorFlow computes with int32 on the host even if there is a GPU. A spacing below float32's
    # smallest normal number would be flushed to 0 on many machines.
    stored_bits, least = np.uint32(_STORED_BITS), max(smallest_exponent + _EXPONENT_BIAS, significand_bits + 1)
    exponent = tf.bitwise.right_shift(tf.bitcast(tf.abs(values), tf.uint32), stored_bits)
    exponent = tf.maximum(exponent, np.uint32(least)) - np.uint32(significand_bits)
    return tf.bitcast(tf.bitwise.left_shift(exponent, stored_bits), tf.float32)
