"""Gradient accumulation over micro batches, as pure functions of lists of tensors.

Micro batches are weighted by their real tokens earlier, in their losses: see ``UpdateRule.loss_weights`` in
``execution/software/training_step.py``.

The lists can be loop variables of a ``tf.while_loop`` or of a Python loop:

    accumulated = initial(variables)
    for i in range(count):
        accumulated = add(reduction, accumulated, gradients(i), i)
    gradients = finish(reduction, accumulated, count)

Reductions, with gᵢ the gradient of micro batch i of N:

    sum            Σ gᵢ
    mean           Σ gᵢ / N, divided once at the end
    running_mean   aᵢ = aᵢ₋₁ · i/(i+1) + gᵢ/(i+1), the mean of the gradients so far: it never exceeds the largest
                   gradient, so a float16 accumulator does not overflow
"""

from __future__ import annotations

from typing import List, Sequence, Union

from keras_extensions.backend import tf


def initial(variables: Sequence[tf.Variable]) -> List[tf.Tensor]:
    """Return a float32 accumulator of zeros for each variable, in the variable's shape."""
    return [tf.zeros(variable.shape) for variable in variables]


def add(
    reduction: str, accumulated: Sequence[tf.Tensor], gradients: Sequence[tf.Tensor], index: Union[int, tf.Tensor]
) -> List[tf.Tensor]:
    """Return the accumulators after one more micro batch, the ``index``-th from 0; its gradients may be sparse."""
    assert len(accumulated) == len(gradients), "one gradient for each accumulator"
    assert all(gradient is not None for gradient in gradients), "accumulate only gradients that exist"
    new = [tf.cast(tf.convert_to_tensor(g), a.dtype) for a, g in zip(accumulated, gradients)]
    if reduction != "running_mean":
        return [a + g for a, g in zip(accumulated, new)]
    seen = tf.cast(index, tf.float32)
    kept, share = seen / (seen + 1), 1 / (seen + 1)
    return [a * tf.cast(kept, a.dtype) + g * tf.cast(share, a.dtype) for a, g in zip(accumulated, new)]


def finish(reduction: str, accumulated: Sequence[tf.Tensor], count: Union[int, tf.Tensor]) -> List[tf.Tensor]:
    """Return the reduced gradients after ``count`` micro batches."""
    if reduction != "mean":
        return list(accumulated)
    return [a / tf.cast(count, a.dtype) for a in accumulated]
