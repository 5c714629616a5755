"""The arithmetic of one update of one variable, in AdamW and in LAMB.

Both papers write the update of a weight matrix w with gradient g as

    m ← β₁ m + (1 - β₁) g            v ← β₂ v + (1 - β₂) g²
    d = m/(1 - β₁ᵗ) / (√(v/(1 - β₂ᵗ)) + ε) + λ w
    w ← w - η · r · d

with r = 1 in AdamW and r the layer's trust ratio in LAMB.

All arithmetic and the moments are float32, whatever the dtype of the variable: in float16 the second moment of a
typical gradient (1e-4)² underflows to zero.

The update of a large model is bound by memory traffic. :func:`adamw_step` and :func:`lamb_step` therefore pass over
weights and moments once. They take handles of variables, so that all variables of a shape share their code.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Tuple, Union

import numpy as np

from keras_extensions.backend import tf


class Handles(NamedTuple):
    """Handles of a float32 variable and of its moments."""

    variable: tf.Tensor
    first: tf.Tensor
    second: tf.Tensor


class Constants(NamedTuple):
    """The constants of an update: λ, 0 without decay; β₁, β₂, ε; whether decay is not scaled by the learning rate."""

    decay: float
    beta_1: float
    beta_2: float
    epsilon: float
    is_published: bool = False


def dense_float32(gradient: tf.Tensor) -> tf.Tensor:
    """Return a gradient as a dense float32 tensor of the variable's shape.

    An embedding lookup yields ``tf.IndexedSlices``. Their rows are summed here, because the usual de-duplication
    (``tf.unique``) has a shape that depends on the data, which XLA cannot compile.
    """
    if isinstance(gradient, tf.IndexedSlices):
        gradient = tf.IndexedSlices(
            tf.cast(gradient.values, tf.float32), gradient.indices, dense_shape=gradient.dense_shape
        )
    return tf.cast(tf.convert_to_tensor(gradient), tf.float32)


def is_weight_matrix(variable: Union[tf.Variable, tf.Tensor]) -> bool:
    """Return whether weight decay and LAMB's trust ratio apply to a variable, or a tensor of its shape.

    As published for BERT, biases, gains and offsets are excluded: by their rank below 2, whatever their names.
    """
    return variable.shape.rank >= 2


def adamw_step(
    gradient: tf.Tensor, handles: Handles, rate: tf.Tensor, updates: tf.Tensor, constants: Constants
) -> None:
    """Update a variable and its moments as AdamW does, with TensorFlow's fused kernel.

    The kernel reads and writes weights and moments once. Its own bias correction is switched off (powers of beta of 0),
    because it computes 1 - βᵗ from a rounded βᵗ and adds ε to the uncorrected moment. It computes 1 - β from β in
    float32 (0.00099998712 for β₂ = 0.999), so the corrections are those of the rounded β.
    """
    if constants.decay > 0:
        weights = tf.raw_ops.ReadVariableOp(resource=handles.variable, dtype=tf.float32)
        share = constants.decay if constants.is_published else rate * constants.decay
        tf.raw_ops.AssignSubVariableOp(resource=handles.variable, value=weights * share)
    rounded = constants._replace(beta_1=_rounded(constants.beta_1), beta_2=_rounded(constants.beta_2))
    correction_1, correction_2 = _bias_corrections(updates, rounded)
    tf.raw_ops.ResourceApplyAdam(
        var=handles.variable,
        m=handles.first,
        v=handles.second,
        beta1_power=0.0,
        beta2_power=0.0,
        lr=rate * tf.sqrt(correction_2) / correction_1,
        beta1=constants.beta_1,
        beta2=constants.beta_2,
        epsilon=constants.epsilon * tf.sqrt(correction_2),
        grad=dense_float32(gradient),
    )


def lamb_step(gradient: tf.Tensor, handles: Handles, rate: tf.Tensor, updates: tf.Tensor, constants: Constants) -> None:
    """Update a variable and its moments as LAMB does; the arguments are those of :func:`adamw_step`."""
    gradient = dense_float32(gradient)
    weights, m, v = (
        tf.ensure_shape(tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32), gradient.shape)
        for handle in handles
    )
    direction, m, v = adam_direction(gradient, m, v, updates, constants)
    if constants.decay > 0:
        direction += constants.decay * weights
    if is_weight_matrix(gradient):
        rate = rate * lamb_trust_ratio(tf.norm(weights), tf.norm(direction))
    tf.raw_ops.AssignVariableOp(resource=handles.first, value=m)
    tf.raw_ops.AssignVariableOp(resource=handles.second, value=v)
    tf.raw_ops.AssignVariableOp(resource=handles.variable, value=weights - rate * direction)


def adam_direction(
    gradient: tf.Tensor, m: tf.Tensor, v: tf.Tensor, updates: tf.Tensor, constants: Constants
) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return d without the decay, and both moments after an update, given those before; all are float32."""
    m = constants.beta_1 * m + (1 - constants.beta_1) * gradient
    v = constants.beta_2 * v + (1 - constants.beta_2) * tf.square(gradient)
    correction_1, correction_2 = _bias_corrections(updates, constants)
    return (m / correction_1) / (tf.sqrt(v / correction_2) + constants.epsilon), m, v


def lamb_trust_ratio(weight_norm: tf.Tensor, direction_norm: tf.Tensor) -> tf.Tensor:
    """Return ‖w‖ / ‖d‖, or 1 if either is 0."""
    usable = tf.logical_and(weight_norm > 0, direction_norm > 0)
    # The inner `where` avoids 0/0 in the discarded branch, which a NaN check of all operations would report.
    return tf.where(usable, weight_norm / tf.where(usable, direction_norm, 1.0), 1.0)


def _bias_corrections(updates: tf.Tensor, constants: Constants) -> Tuple[tf.Tensor, tf.Tensor]:
    """Return 1 - β₁ᵗ and 1 - β₂ᵗ of update t = 1, 2, … after ``updates`` = t - 1, as float32 scalars."""
    update = tf.cast(updates + 1, tf.float32)
    return _one_minus_power(constants.beta_1, update), _one_minus_power(constants.beta_2, update)


def _rounded(beta: float) -> float:
    return float(np.float32(beta))


def _one_minus_power(beta: float, exponent: tf.Tensor) -> tf.Tensor:
    """Return 1 - βᵗ without the cancellation that costs float32 four digits at β₂ = 0.999 and t = 1."""
    return -tf.math.expm1(exponent * math.log(beta)) if beta > 0 else tf.ones_like(exponent)
