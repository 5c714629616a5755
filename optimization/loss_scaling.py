"""Loss scaling (Micikevicius et al. 2018, section 3.2).

The loss is multiplied by the loss scale before the backward pass, so that small gradients do not underflow in float16.
The gradients are divided by it, in float32, before the update.
"""

from __future__ import annotations

from typing import List, Sequence, Union

from keras_extensions.backend import tf
from optimization.steps import dense_float32

# Constants of the automatic loss scale. The interval is that of Keras and PyTorch. Powers of two cause no rounding.
INITIAL_SCALE, GROWTH_INTERVAL, LARGEST_SCALE = 2.0**15, 2000, 2.0**24


class StaticLossScale:
    """A constant loss scale."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def unscale(self, gradients: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        """Return the gradients of the unscaled loss, dense and in float32."""
        dense = [dense_float32(gradient) for gradient in gradients]
        return dense if self.factor == 1.0 else [gradient * (1.0 / self.factor) for gradient in dense]

    def adapt(self, finite: tf.Tensor) -> None:
        """Do nothing, because the scale is constant."""


class AutomaticLossScale(tf.Module):
    """A loss scale that approaches the largest factor at which gradients do not overflow.

    An update with non-finite gradients, which must be skipped, halves the scale; ``GROWTH_INTERVAL`` finite updates in
    a row double it. Its variables must be saved in checkpoints.
    """

    def __init__(self, initial: float) -> None:
        super().__init__(name="loss_scale")
        self.factor = tf.Variable(initial, trainable=False, dtype=tf.float32)
        self.good_updates = tf.Variable(0, trainable=False, dtype=tf.int64)

    def unscale(self, gradients: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        """Return the gradients of the unscaled loss, dense and in float32."""
        inverse = 1.0 / self.factor
        return [dense_float32(gradient) * inverse for gradient in gradients]

    def adapt(self, finite: tf.Tensor) -> None:
        """Adapt the scale to whether all gradients of an update were finite, a bool scalar."""
        good = tf.where(finite, self.good_updates + 1, 0)
        grows = good >= GROWTH_INTERVAL
        grown = tf.where(grows, tf.minimum(self.factor * 2.0, LARGEST_SCALE), self.factor)
        self.factor.assign(tf.where(finite, grown, tf.maximum(self.factor / 2.0, 1.0)))
        self.good_updates.assign(tf.where(grows, tf.zeros_like(good), good))


LossScale = Union[StaticLossScale, AutomaticLossScale]


def all_finite(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return whether no gradient contains a NaN or an infinity, as a bool scalar."""
    dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in dense])
