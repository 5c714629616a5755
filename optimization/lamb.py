"""LAMB."""

from __future__ import annotations

from typing import Union

from keras_extensions.backend import keras, tf
from optimization.decoupled import DecoupledOptimizer, is_weight_matrix


@keras.utils.register_keras_serializable(package="bert")
class LAMB(DecoupledOptimizer):
    """Layer-wise adaptive moments for large batches, Algorithm 2 of You et al. 2020 (arXiv 1904.00962).

    With bias correction. The trust ratio of a weight matrix is ‖w‖ / ‖d‖, d being Adam's direction plus
    decay; it is 1 where either norm is 0. Norms are taken in float32 over the whole variable. Variables of
    rank below 2 (biases, LayerNorm gains) are neither decayed nor adapted.

    Args: see ``DecoupledOptimizer``.

    Example:
        >>> optimizer = LAMB(learning_rate=UpDown(0.006, total_steps=7000, warmup_frac=0.28))
    """

    def trust_ratio(self, variable: tf.Variable, weights: tf.Tensor, direction: tf.Tensor) -> Union[float, tf.Tensor]:
        """‖w‖ / ‖d‖ for a weight matrix, 1 otherwise."""
        if not self.uses_norms(variable):
            return 1.0
        return self.ratio_of_norms(self.layer_norm(weights), self.layer_norm(direction))

    def uses_norms(self, variable: tf.Variable) -> bool:
        """Whether the variable is a weight matrix."""
        return is_weight_matrix(variable)

    def ratio_of_norms(self, weight_norm: tf.Tensor, direction_norm: tf.Tensor) -> tf.Tensor:
        """‖w‖ / ‖d‖, or 1 where either is 0."""
        usable = tf.logical_and(weight_norm > 0, direction_norm > 0)
        # The inner `where` keeps 0/0 out of the discarded branch, so that a NaN check over all operations
        # stays quiet.
        return tf.where(usable, weight_norm / tf.where(usable, direction_norm, 1.0), 1.0)

    def layer_norm(self, values: tf.Tensor) -> tf.Tensor:
        """Euclidean norm of a layer."""
        return tf.norm(values)
