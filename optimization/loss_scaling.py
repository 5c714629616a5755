"""Loss scaling: the loss is multiplied before the backward pass, so that small gradients survive in float16,
and the gradients are divided by the same factor, in float32, before the update (Micikevicius et al. 2018,
section 3.2).

A loss scale is an object with ``scale`` and ``unscale``. A static one holds a number; an automatic one holds
it in a variable and needs one more method, which the trainer calls with the unscaled gradients to adapt it.
"""

from __future__ import annotations

from typing import List, Optional, Sequence

from keras_extensions.backend import tf
from optimization.gradients import dense_float32
from utilities.errors import UserError


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

    def unscale(self, gradients: Sequence[Optional[tf.Tensor]]) -> List[Optional[tf.Tensor]]:
        """Gradients of the unscaled loss, dense and in float32; None stays None."""
        return [None if gradient is None else self._unscaled(gradient) for gradient in gradients]

    def _unscaled(self, gradient: tf.Tensor) -> tf.Tensor:
        dense = dense_float32(gradient)
        return dense if self.factor == 1.0 else dense * (1.0 / self.factor)
