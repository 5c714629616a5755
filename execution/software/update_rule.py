"""What every engine does with the gradients of an update, however it computed them."""

from __future__ import annotations

from typing import Dict, List, Sequence

from execution.interface import Objective, Tensors, Update
from keras_extensions.backend import keras, tf
from optimization.loss_scaling import StaticLossScale


class UpdateRule:
    """Weights of the losses, loss scale, and the optimizer's update.

    Args:
        optimizer: its slots are made here.
        objective: names the losses and counts what is behind them.
        update: how micro batches are combined.
        variables: the trainable weights, in the order of the gradients.
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        update: Update,
        variables: Sequence[tf.Variable],
    ):
        self.optimizer = optimizer
        self.objective = objective
        self.update = update
        self.variables = variables
        self._loss_scale = StaticLossScale(update.loss_scale)
        optimizer.build(variables)
        self.apply = tf.function(self._apply, autograph=False)

    def loss_weights(self, batch: Tensors) -> Dict[str, tf.Tensor]:
        """Factor on each loss sum that makes the reduced gradient that of the mean over the whole update.

        Args:
            batch: all micro batches of the update.
        """
        update, counts = self.update, self.objective.counts(batch)
        copies = update.virtual_replicas if update.reduction == "sum" else 1
        factor = update.micro_batches / copies
        return {name: tf.math.divide_no_nan(factor, counts[name]) for name in self.objective.losses}

    def scaled_loss(self, sums: Tensors, weights: Tensors) -> tf.Tensor:
        """What to differentiate for one micro batch."""
        return self._loss_scale.scale(tf.add_n([sums[name] * weights[name] for name in self.objective.losses]))

    def _apply(self, gradients: List[tf.Tensor]) -> None:
        gradients = self._loss_scale.unscale(gradients)
        self.optimizer.apply_gradients(zip(gradients, self.variables), skip_gradients_aggregation=True)
