"""One device: every stage in sequence, micro batch after micro batch, then one update.

A micro batches per update · B micro batch
"""

from __future__ import annotations

from typing import List, Tuple

from execution.interface import Objective, Tensors, Update
from execution.software.randomness import SeedScope, micro_batch_seed
from keras_extensions.backend import keras, tf
from optimization import accumulation
from optimization.loss_scaling import StaticLossScale


class SequentialEngine:
    """Gradients of the A micro batches of an update, accumulated inside the graph, and one optimizer update.

    The loop over micro batches is a graph loop around a compiled body: measured fastest, and quick to compile.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        update: Update,
        seeds: SeedScope,
        run_seed: int,
        xla: bool,
    ):
        self._model = model
        self._optimizer = optimizer
        self._objective = objective
        self._update = update
        self._seeds = seeds
        self._run_seed = run_seed
        self._xla = xla
        self._loss_scale = StaticLossScale(update.loss_scale)
        self._variables = model.trainable_variables
        optimizer.build(self._variables)
        self._compiled_gradients = tf.function(self._gradients, jit_compile=xla, autograph=False)
        self._compiled_apply = tf.function(self._apply, autograph=False)

    def update(self, batch: Tensors) -> Tensors:
        """See :class:`execution.software.trainable.Engine`."""
        weights = self._loss_weights(self._objective.counts(batch))
        if self._update.micro_batches == 1:
            gradients, sums = self._micro_batch(batch, weights, tf.constant(0))
        else:
            gradients, sums = self._accumulate(batch, weights)
        self._compiled_apply(gradients)
        return sums

    def compile_step(self, element_spec: Tensors) -> None:
        """See :class:`execution.software.trainable.Engine`."""
        tf.function(self.update).get_concrete_function(element_spec)
        if self._xla:
            micro_batch = {name: tf.zeros(spec.shape[1:], spec.dtype) for name, spec in element_spec.items()}
            weights = {name: tf.zeros([]) for name in self._objective.losses}
            seed = tf.zeros([2], tf.int32)
            self._compiled_gradients.experimental_get_compiler_ir(micro_batch, weights, seed)(stage="optimized_hlo")

    def _loss_weights(self, counts: Tensors) -> Tensors:
        """Factor on each loss sum that makes the reduced gradient that of the mean over the whole update."""
        update = self._update
        copies = update.virtual_replicas if update.reduction == "sum" else 1
        factor = update.micro_batches / copies
        return {name: tf.math.divide_no_nan(factor, counts[name]) for name in self._objective.losses}

    def _gradients(self, batch: Tensors, weights: Tensors, seed: tf.Tensor) -> Tuple[List[tf.Tensor], Tensors]:
        with self._seeds.using(seed):  # around the backward pass too: recomputation must draw the same masks
            with tf.GradientTape() as tape:
                outputs = self._model({name: batch[name] for name in self._model.input_names}, training=True)
                sums = self._objective.sums(outputs, batch)
                loss = tf.add_n([sums[name] * weights[name] for name in self._objective.losses])
                scaled_loss = self._loss_scale.scale(loss)
            gradients = tape.gradient(scaled_loss, self._variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return gradients, sums

    def _micro_batch(self, batch: Tensors, weights: Tensors, index: tf.Tensor) -> Tuple[List[tf.Tensor], Tensors]:
        seed = micro_batch_seed(self._run_seed, self._optimizer.iterations, index)
        micro_batch = {name: values[index] for name, values in batch.items()}
        return self._compiled_gradients(micro_batch, weights, seed)

    def _accumulate(self, batch: Tensors, weights: Tensors) -> Tuple[List[tf.Tensor], Tensors]:
        count, reduction = self._update.micro_batches, self._update.reduction
        totals = accumulation.initial(self._variables)
        sums = {name: tf.zeros([]) for name in self._objective.counts(batch)}

        def body(index, totals, sums):
            gradients, new = self._micro_batch(batch, weights, index)
            totals = accumulation.add(reduction, totals, gradients, index)
            return index + 1, totals, {name: sums[name] + new[name] for name in sums}

        _, totals, sums = tf.while_loop(
            lambda index, *_: index < count, body, (tf.constant(0), totals, sums), parallel_iterations=1
        )
        return accumulation.finish(reduction, totals, count), sums

    def _apply(self, gradients: List[tf.Tensor]) -> None:
        gradients = self._loss_scale.unscale(gradients)
        self._optimizer.apply_gradients(zip(gradients, self._variables), skip_gradients_aggregation=True)
