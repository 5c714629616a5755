"""AdamW."""

from __future__ import annotations

from keras_extensions.backend import keras, tf
from optimization.decoupled import DecoupledOptimizer


@keras.utils.register_keras_serializable(package="bert")
class AdamW(DecoupledOptimizer):
    """Adam with decoupled weight decay, Algorithm 2 of Loshchilov & Hutter 2019 (arXiv 1711.05101).

    Decay is scaled by the learning rate, and ε is added to the root of the bias-corrected second moment, as
    in ``torch.optim.AdamW``. Variables of rank below 2 (biases, LayerNorm gains) are not decayed.

    Args: see ``DecoupledOptimizer``.

    Example:
        >>> optimizer = AdamW(learning_rate=1e-4, weight_decay_rate=0.01)
        >>> model.compile(optimizer=optimizer, loss="mse")
    """

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """Updates one variable: TensorFlow's fused kernel for float32, single operations otherwise.

        It wants whole moments beside the weights.
        The kernel reads and writes weights and moments once. Its own bias correction is switched off (powers
        of beta of 0) because it takes 1 - βᵗ from a rounded βᵗ, and because ε belongs to the corrected
        moment.
        """
        if variable.dtype != tf.float32 or self.shards is not None or self.state_device is not None:
            super().update_step(gradient, variable)
            return
        rate = self.learning_rate_float32()
        if self.uses_decay(variable):
            variable.assign_sub(variable * (rate * self.weight_decay_rate))
        first, second = self.moments(variable)
        correction_1, correction_2 = self.bias_corrections()
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=first.handle,
            v=second.handle,
            beta1_power=0.0,
            beta2_power=0.0,
            lr=rate * tf.sqrt(correction_2) / correction_1,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon * tf.sqrt(correction_2),
            grad=gradient,
        )

    def trust_ratio(self, variable: tf.Variable, weights: tf.Tensor, direction: tf.Tensor) -> float:
        """1: AdamW has one learning rate for all layers."""
        return 1.0
