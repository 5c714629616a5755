"""Gradient accumulation over micro batches, as pure functions on lists of tensors.

They fit the loop variables of a ``tf.while_loop`` as well as a Python loop:

    accumulated = initial(variables)
    for i in range(count):
        accumulated = add(reduction, accumulated, gradients_of(i), i)
    gradients = finish(reduction, accumulated, count)

Reductions, with gᵢ the gradient of micro batch i of N:

    sum            Σ gᵢ
    mean           Σ gᵢ / N, divided once at the end
    running_mean   aᵢ = aᵢ₋₁ · i/(i+1) + gᵢ/(i+1): the mean of what was seen so far, which never grows
                   beyond the gradients themselves, so a narrow accumulator does not overflow
"""

from __future__ import annotations

from typing import List, Sequence, Union

from keras_extensions.backend import tf
from utilities.errors import UserError

REDUCTIONS = ("sum", "mean", "running_mean")


def initial(variables: Sequence[tf.Variable], dtype: tf.DType = tf.float32) -> List[tf.Tensor]:
    """Accumulators of zeros, one for each variable, of its shape."""
    return [tf.zeros(variable.shape, dtype) for variable in variables]


def add(
    reduction: str,
    accumulated: Sequence[tf.Tensor],
    gradients: Sequence[tf.Tensor],
    index: Union[int, tf.Tensor],
) -> List[tf.Tensor]:
    """The accumulators after one more micro batch.

    Args:
        reduction: one of ``REDUCTIONS``.
        accumulated: what ``initial`` or the last ``add`` gave.
        gradients: gradients of the micro batch, of any floating dtype, dense or ``IndexedSlices``.
        index: 0-based number of the micro batch, int or integer scalar tensor.

    Raises:
        UserError: the reduction has no such name.
    """
    _check(reduction)
    assert len(accumulated) == len(gradients), "one gradient for each accumulator"
    assert all(gradient is not None for gradient in gradients), "accumulate only what the loss depends on"
    new = [tf.cast(tf.convert_to_tensor(g), a.dtype) for a, g in zip(accumulated, gradients)]
    if reduction != "running_mean":
        return [a + g for a, g in zip(accumulated, new)]
    seen = tf.cast(index, tf.float32)
    kept, share = seen / (seen + 1), 1 / (seen + 1)
    return [a * tf.cast(kept, a.dtype) + g * tf.cast(share, a.dtype) for a, g in zip(accumulated, new)]


def finish(reduction: str, accumulated: Sequence[tf.Tensor], count: Union[int, tf.Tensor]) -> List[tf.Tensor]:
    """The reduced gradients after ``count`` micro batches."""
    _check(reduction)
    if reduction != "mean":
        return list(accumulated)
    return [a / tf.cast(count, a.dtype) for a in accumulated]


def _check(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise UserError(
            f"optimizer_opts.gradient_accumulation_reduction is {reduction!r}; use one of {', '.join(REDUCTIONS)}"
        )
