"""Stop at the first number that is not finite, with the name of the layer that made it."""

from __future__ import annotations

import contextlib
import re
from typing import Iterator, Tuple

from execution.interface import Objective, Tensors
from keras_extensions.backend import tf
from utilities.errors import UserError

_MARK = "fp_exceptions, in "
_FOUND = re.compile(re.escape(_MARK) + r"(?P<place>.+?) : Tensor had (?P<what>.+?) values")


class Watch:
    """Looks at tensors as they are computed, forward and backward.

    Args:
        active: False: tensors pass unwatched.
        backward: look at gradients too; not where the loss scale adapts, which gradients that overflow make it do.

    Attributes:
        model: name of the model, left out of the layers' names.
    """

    def __init__(self, active: bool, backward: bool = True) -> None:
        self.active = active
        self.backward = backward
        self.model = ""

    def __call__(self, x: tf.Tensor, place: str = "") -> tf.Tensor:
        """``x``; the run ends where it holds NaN or infinities.

        Args:
            place: what makes it; by default the layer that is being called.
        """
        if not self.active:
            return x
        place = place or self._layer()
        return _checked(x, f"{_MARK}{place}", self.backward)

    def _layer(self) -> str:
        parts = [part for part in tf.get_current_name_scope().split("/") if part]
        return "/".join(parts[1:] if parts[:1] == [self.model] else parts) or "the model"


def _checked(x: tf.Tensor, message: str, backward: bool) -> tf.Tensor:
    @tf.custom_gradient
    def check(values: tf.Tensor):
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return tf.debugging.check_numerics(upstream, f"{message}, gradient") if backward else upstream

        return tf.debugging.check_numerics(values, message), gradient

    return check(x)


class WatchedObjective:
    """An objective whose inputs and sums are watched; see :class:`execution.interface.Objective`."""

    def __init__(self, objective: Objective, watch: Watch) -> None:
        self.losses: Tuple[str, ...] = objective.losses
        self.counts = objective.counts
        self._objective = objective
        self._watch = watch

    def sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        """See :class:`execution.interface.Objective`."""
        seen = {name: self._watch(value, f"the model's output {name}") for name, value in outputs.items()}
        sums = self._objective.sums(seen, batch)
        return {name: self._watch(value, name) for name, value in sums.items()}


@contextlib.contextmanager
def exceptions_told() -> Iterator[None]:
    """Around training.

    Raises:
        UserError: a watched tensor was not finite.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        found = _FOUND.search(str(error))
        if found is None:
            raise
        raise UserError(
            f"fp_exceptions: {found['place']} gave {found['what']}; lower"
            " optimizer_opts.learning_rate.max_learning_rate or optimizer_opts.loss_scaling, or set execution.precision"
            " to float32"
        ) from error
