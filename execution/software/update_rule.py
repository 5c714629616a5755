"""What every engine does with the gradients of an update, however it computed them."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence

from execution.interface import Objective, Tensors, Update
from execution.software.cluster.collectives import Collectives
from execution.software.precision import FLOAT16, FLOAT32
from keras_extensions.backend import keras, tf
from keras_extensions.callbacks.reporting import LOSS_SCALE, OVERFLOWS
from optimization.loss_scaling import AutomaticLossScale, LossScale, StaticLossScale, all_finite
from optimization.optimizers import dense_float32


class UpdateRule:
    """Weights of the losses, loss scale, and the optimizer's update.

    In narrow formats an update whose gradients are not finite is left out: weights, moments and the optimizer's counter
    stay as they are.

    Args:
        optimizer: its slots are made here.
        objective: names the losses and counts what is behind them.
        update: how micro batches are combined.
        variables: the trainable weights, in the order of the gradients.
        precision: of the weights.
        collectives: over the processes that share an update; None: this one does all of it.

    Attributes:
        loss_scale: an automatic one belongs into checkpoints.
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        update: Update,
        variables: Sequence[tf.Variable],
        precision: str = FLOAT32,
        collectives: Optional[Collectives] = None,
    ):
        self.optimizer = optimizer
        self.objective = objective
        self.update = update
        self.variables = variables
        self.loss_scale = loss_scale_of(update, precision)
        self._is_narrow = precision != FLOAT32
        self._collectives = collectives
        optimizer.build(variables)
        self.apply = tf.function(self._apply, autograph=False)

    @property
    def first_micro_batch(self) -> int:
        """The number, within the whole update, of the first micro batch of this process."""
        return self._collectives.index * self.update.micro_batches if self._collectives else 0

    def totals(self, tensors: Tensors) -> Tensors:
        """Sums or counts of the micro batches here, over the micro batches of all processes."""
        return self._collectives.totals(tensors) if self._collectives else tensors

    def loss_weights(self, batch: Tensors) -> Dict[str, tf.Tensor]:
        """Factor on each loss sum that makes the reduced gradient that of the scaled mean over the whole update.

        Args:
            batch: all micro batches of the update that are this process'.
        """
        update, counts = self.update, self.totals(self.objective.counts(batch))
        copies = update.virtual_replicas if update.reduction == "sum" else 1
        factor = self.loss_scale.factor * (update.micro_batches / copies)
        return {name: tf.math.divide_no_nan(factor, counts[name]) for name in self.objective.losses}

    def scaled_loss(self, sums: Tensors, weights: Tensors) -> tf.Tensor:
        """What to differentiate for one micro batch."""
        return tf.add_n([sums[name] * weights[name] for name in self.objective.losses])

    def _apply(self, gradients: List[tf.Tensor]) -> Tensors:
        """Update the weights; returns what is to be told of the update: name → scalar float32."""
        if self._collectives is not None:
            devices = [variable.device for variable in self.variables]
            gradients = self._collectives.sums([dense_float32(gradient) for gradient in gradients], devices)
        if not self._is_narrow:
            self._update(gradients)
            return {}
        told = {}
        if isinstance(self.loss_scale, AutomaticLossScale):
            told[LOSS_SCALE] = tf.identity(self.loss_scale.factor)
        finite = all_finite(gradients)
        tf.cond(finite, lambda: self._update(gradients), lambda: tf.constant(False))
        self.loss_scale.adapt(finite)
        told[OVERFLOWS] = 1.0 - tf.cast(finite, tf.float32)
        return told

    def _update(self, gradients: List[tf.Tensor]) -> tf.Tensor:
        pairs = zip(self.loss_scale.unscale(gradients), self.variables)
        self.optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)
        return tf.constant(True)


def loss_scale_of(update: Update, precision: str) -> LossScale:
    """The loss scale that an update asks for; one that adapts is of use in float16 alone, whose range is small."""
    if not update.adaptive_loss_scale:
        return StaticLossScale(update.loss_scale)
    return AutomaticLossScale(update.loss_scale) if precision == FLOAT16 else StaticLossScale(1.0)
