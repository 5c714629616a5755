"""Loss scaling: the loss is multiplied before the backward pass, so that small gradients survive in float16,
and the gradients are divided by the same factor, in float32, before the update (Micikevicius et al. 2018,
section 3.2).

A loss scale has a ``factor``, ``unscale`` and ``adapt``. That of a static one is a number, that of an automatic one a
variable.
"""

from __future__ import annotations

from typing import List, Optional, Sequence, Union

from keras_extensions.backend import tf
from optimization.gradients import dense_float32
from utilities.errors import UserError

# Of an automatic loss scale. The interval is that of Keras and PyTorch; powers of two change no digit of a gradient.
INITIAL_SCALE, GROWTH_INTERVAL, LARGEST_SCALE = 2.0**15, 2000, 2.0**24

Gradients = Sequence[Optional[tf.Tensor]]


class StaticLossScale:
    """A loss scale that stays the same for the whole run.

    Args:
        factor: the scale; None or 1: the loss is left alone. Powers of two change no digit of a gradient.

    Raises:
        UserError: the factor is not positive.
    """

    def __init__(self, factor: Optional[float] = None) -> None:
        if factor is not None and not 0 < factor < float("inf"):
            raise UserError(f"optimizer_opts.loss_scaling is {factor}; give a positive number, or none")
        self.factor = 1.0 if factor is None else float(factor)

    def scale(self, loss: tf.Tensor) -> tf.Tensor:
        """The loss to differentiate, in the dtype of ``loss``."""
        return loss if self.factor == 1.0 else loss * tf.cast(self.factor, loss.dtype)

    def unscale(self, gradients: Gradients) -> List[Optional[tf.Tensor]]:
        """Gradients of the unscaled loss, dense and in float32; None stays None."""
        return [None if gradient is None else self._unscaled(gradient) for gradient in gradients]

    def adapt(self, finite: tf.Tensor) -> None:
        """Nothing."""

    def _unscaled(self, gradient: tf.Tensor) -> tf.Tensor:
        dense = dense_float32(gradient)
        return dense if self.factor == 1.0 else dense * (1.0 / self.factor)


class AutomaticLossScale(tf.Module):
    """A loss scale that seeks the largest factor at which gradients do not overflow.

    It is halved by an update whose gradients are not finite, which has to be left out, and doubled after so many good
    updates in a row. Its variables belong into a checkpoint.

    Args:
        initial: factor to begin with, a power of two.
        interval: good updates in a row before the factor is doubled.

    Source: Micikevicius et al. 2018, section 3.2; the constants are those of Keras' ``LossScaleOptimizer``.
    """

    def __init__(self, initial: float = INITIAL_SCALE, interval: Optional[int] = None) -> None:
        super().__init__(name="loss_scale")
        self._interval = GROWTH_INTERVAL if interval is None else interval
        self.factor = tf.Variable(initial, trainable=False, dtype=tf.float32)
        self.good_updates = tf.Variable(0, trainable=False, dtype=tf.int64)

    def unscale(self, gradients: Gradients) -> List[Optional[tf.Tensor]]:
        """Gradients of the unscaled loss, dense and in float32; None stays None."""
        inverse = 1.0 / self.factor
        return [None if gradient is None else dense_float32(gradient) * inverse for gradient in gradients]

    def adapt(self, finite: tf.Tensor) -> None:
        """Take note of an update.

        Args:
            finite: scalar bool, whether all its gradients were.
        """
        good = tf.where(finite, self.good_updates + 1, 0)
        grows = good >= self._interval
        grown = tf.where(grows, tf.minimum(self.factor * 2.0, LARGEST_SCALE), self.factor)
        self.factor.assign(tf.where(finite, grown, tf.maximum(self.factor / 2.0, 1.0)))
        self.good_updates.assign(tf.where(grows, tf.zeros_like(good), good))


LossScale = Union[StaticLossScale, AutomaticLossScale]


def all_finite(gradients: Gradients) -> tf.Tensor:
    """Whether no gradient holds a NaN or an infinity, as a scalar bool."""
    dense = [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in dense])
