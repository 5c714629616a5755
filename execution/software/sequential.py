"""One device: every stage in sequence, micro batch after micro batch, then one update.

A micro batches per update · B micro batch
"""

from __future__ import annotations

from typing import List, Tuple

from execution.interface import Tensors
from execution.software.randomness import SeedScope, micro_batch_seed
from execution.software.update_rule import UpdateRule
from keras_extensions.backend import keras, tf
from optimization import accumulation


class SequentialEngine:
    """Gradients of the A micro batches of an update, accumulated inside the graph, and one optimizer update.

    The loop over micro batches is a graph loop around a compiled body: measured fastest, and quick to compile.

    Args:
        model: the whole model.
        rule: what is done with the gradients.
        seeds: of dropout.
        run_seed: from which the seed of every micro batch follows.
        xla: compile the computation of a micro batch.
    """

    def __init__(self, model: keras.Model, rule: UpdateRule, seeds: SeedScope, run_seed: int, xla: bool):
        self._model = model
        self._rule = rule
        self._seeds = seeds
        self._run_seed = run_seed
        self._xla = xla
        self._compiled_gradients = tf.function(self._gradients, jit_compile=xla, autograph=False)

    def update(self, batch: Tensors) -> Tensors:
        """See :class:`execution.software.trainable.Engine`."""
        weights = self._rule.loss_weights(batch)
        if self._rule.update.micro_batches == 1:
            gradients, sums = self._micro_batch(batch, weights, tf.constant(0))
        else:
            gradients, sums = self._accumulate(batch, weights)
        return {**self._rule.totals(sums), **self._rule.apply(gradients)}

    def compile_step(self, element_spec: Tensors) -> None:
        """See :class:`execution.software.trainable.Engine`."""
        tf.function(self.update).get_concrete_function(element_spec)
        if self._xla:
            micro_batch = {name: tf.zeros(spec.shape[1:], spec.dtype) for name, spec in element_spec.items()}
            weights = {name: tf.zeros([]) for name in self._rule.objective.losses}
            seed = tf.zeros([2], tf.int32)
            self._compiled_gradients.experimental_get_compiler_ir(micro_batch, weights, seed)(stage="optimized_hlo")

    def _gradients(self, batch: Tensors, weights: Tensors, seed: tf.Tensor) -> Tuple[List[tf.Tensor], Tensors]:
        with self._seeds.using(seed):  # around the backward pass too: recomputation must draw the same masks
            with tf.GradientTape() as tape:
                outputs = self._model({name: batch[name] for name in self._model.input_names}, training=True)
                sums = self._rule.objective.sums(outputs, batch)
                loss = self._rule.scaled_loss(sums, weights)
            gradients = tape.gradient(loss, self._rule.variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return gradients, sums

    def _micro_batch(self, batch: Tensors, weights: Tensors, index: tf.Tensor) -> Tuple[List[tf.Tensor], Tensors]:
        number = index + self._rule.first_micro_batch if self._rule.first_micro_batch else index
        seed = micro_batch_seed(self._run_seed, self._rule.optimizer.iterations, number)
        micro_batch = {name: values[index] for name, values in batch.items()}
        return self._compiled_gradients(micro_batch, weights, seed)

    def _accumulate(self, batch: Tensors, weights: Tensors) -> Tuple[List[tf.Tensor], Tensors]:
        count, reduction = self._rule.update.micro_batches, self._rule.update.reduction
        totals = accumulation.initial(self._rule.variables)
        sums = {name: tf.zeros([]) for name in self._rule.objective.counts(batch)}

        def body(index, totals, sums):
            gradients, new = self._micro_batch(batch, weights, index)
            totals = accumulation.add(reduction, totals, gradients, index)
            return index + 1, totals, {name: sums[name] + new[name] for name in sums}

        _, totals, sums = tf.while_loop(
            lambda index, *_: index < count, body, (tf.constant(0), totals, sums), parallel_iterations=1
        )
        return accumulation.finish(reduction, totals, count), sums
