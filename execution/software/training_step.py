"""The training step: the gradients of one weight update, the weighting of losses, and the optimizer's update.

A step is one weight update over A micro batches. An engine computes the gradients, here in sequence on one device, in
``pipeline`` over several; :class:`UpdateRule` is common to both. ``trainable_model.py`` makes one step after the other.

Losses are weighted by the real masked tokens (and sequences) of the whole global batch: before the first micro batch,
:meth:`UpdateRule.loss_weights` counts those of all micro batches of all processes. The update is therefore that of one
large batch, however it is split.

A  micro batches of an update in this process
B  samples of a micro batch
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from execution.interface import Objective, Tensors, Update
from execution.software.dropout import DropoutSeeds, micro_batch_seed
from execution.software.precision import FLOAT16, FLOAT32, LOW_PRECISION, WeightCopies
from keras_extensions.backend import keras, tf
from optimization import accumulation
from optimization.loss_scaling import AutomaticLossScale, LossScale, StaticLossScale, all_finite
from optimization.muon import Muon
from optimization.optimizers import DecoupledOptimizer
from optimization.steps import dense_float32
from utilities.metric_names import LOSS_SCALE, OVERFLOWS


class UpdateRule:
    """Weights the losses, scales them, and applies the gradients with the optimizer.

    In float16 and bfloat16 an update with non-finite gradients is skipped: weights, moments and the optimizer's counter
    stay unchanged.
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        update: Update,
        variables: Sequence[tf.Variable],
        precision: str = FLOAT32,
        collectives: Any = None,
        xla: bool = False,
        on_gpu: bool = False,
    ):
        self.optimizer = optimizer
        self.objective = objective
        self.update = update
        self.variables = variables
        self.loss_scale = make_loss_scale(update, precision)
        self._is_low_precision = precision in LOW_PRECISION
        self._collectives = collectives
        optimizer.build(variables)
        # Unscaling and clipping are fused with the update only if XLA compiles all of it at once. On a GPU, this also
        # saves a start of a program for each weight; on a CPU, XLA's products, which Muon needs, are slower.
        unscaled = isinstance(self.loss_scale, StaticLossScale) and self.loss_scale.factor == 1.0
        can_compile_steps = xla and not on_gpu and unscaled and isinstance(optimizer, DecoupledOptimizer)
        self._by_weight = can_compile_steps and optimizer.compile_steps()
        whole = xla and not self._by_weight and (on_gpu or not isinstance(optimizer, Muon))
        self.apply = tf.function(self._apply, jit_compile=whole, autograph=False)

    def seed(self, run_seed: int, index: tf.Tensor) -> tf.Tensor:
        """Return the dropout seed (2,) of this process' micro batch ``index`` in the current update."""
        first = self._collectives.index * self.update.micro_batches if self._collectives else 0
        return micro_batch_seed(run_seed, self.optimizer.iterations, index + first if first else index)

    def totals(self, tensors: Tensors) -> Tensors:
        return self._collectives.all_reduce_scalars(tensors) if self._collectives else tensors

    def loss_weights(self, batch: Tensors) -> Dict[str, tf.Tensor]:
        """Return the factor on the sum of each loss over a micro batch: loss scale × micro batches / real tokens.

        With these factors the reduced gradient is that of the scaled mean over the whole global batch (A, B, …).
        """
        update, counts = self.update, self.totals(self.objective.counts(batch))
        replicas = update.virtual_replicas if update.reduction == "sum" else 1
        factor = self.loss_scale.factor * (update.micro_batches / replicas)
        return {name: tf.math.divide_no_nan(factor, counts[name]) for name in self.objective.losses}

    def scaled_loss(self, sums: Tensors, weights: Tensors) -> tf.Tensor:
        return tf.add_n([sums[name] * weights[name] for name in self.objective.losses])

    def _apply(self, gradients: List[tf.Tensor]) -> Tensors:
        """Update the weights with the reduced gradients of all micro batches."""
        if self._collectives is not None:
            devices = [variable.device for variable in self.variables]
            gradients = [dense_float32(gradient) for gradient in gradients]
            gradients = self._collectives.all_reduce_tensors(gradients, devices)
        if not self._is_low_precision:
            self._apply_unscaled(gradients)
            return {}
        reported = {}
        if isinstance(self.loss_scale, AutomaticLossScale):
            reported[LOSS_SCALE] = tf.identity(self.loss_scale.factor)
        finite = all_finite(gradients)
        tf.cond(finite, lambda: self._apply_unscaled(gradients), lambda: tf.constant(False))
        self.loss_scale.adapt(finite)
        reported[OVERFLOWS] = 1.0 - tf.cast(finite, tf.float32)
        return reported

    def _apply_unscaled(self, gradients: List[tf.Tensor]) -> tf.Tensor:
        unscaled = gradients if self._by_weight else self.loss_scale.unscale(gradients)
        pairs = zip(unscaled, self.variables)
        self.optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)
        return tf.constant(True)


def make_loss_scale(update: Update, precision: str) -> LossScale:
    """Return the loss scale of an update; an adaptive one is useful only in float16, whose range is small."""
    if not update.adaptive_loss_scale:
        return StaticLossScale(update.loss_scale)
    return AutomaticLossScale(update.loss_scale) if precision == FLOAT16 else StaticLossScale(1.0)


class SequentialEngine:
    """Makes an update on one device: each micro batch passes through the whole model.

    The loop over the micro batches is a graph loop around one compiled function, which was measured to be fastest and
    compiles quickly. With ``parallel``, all micro batches are computed at the same time instead, and their gradients
    are added in the same order.

    Args:
        copies: the bfloat16 copies of weights that are made once an update; layers cast other weights at each use.
        one_program: whether XLA compiles the whole update as one program. On a GPU, nothing in an update then waits for
            the host: seeds, loss weights, copies and counters are computed where the model is.
    """

    def __init__(
        self,
        model: keras.Model,
        rule: UpdateRule,
        seeds: DropoutSeeds,
        run_seed: int,
        xla: bool,
        parallel: int,
        copies: WeightCopies,
        one_program: bool,
    ):
        self.one_program = one_program
        self._model = model
        self._rule = rule
        self._seeds = seeds
        self._run_seed = run_seed
        self._xla = xla
        self._parallel = parallel
        self._copies = copies
        self._compiled_gradients = tf.function(self._gradients, jit_compile=xla, autograph=False)

    def update(self, batch: Tensors) -> Tensors:
        weights = self._rule.loss_weights(batch)
        copies = [tf.cast(variable, tf.bfloat16) for variable in self._copies.variables]
        if self._rule.update.micro_batches == 1:
            gradients, sums = self._micro_batch(batch, weights, copies, tf.constant(0))
        elif self._parallel > 1:
            gradients, sums = self._compute_at_once(batch, weights, copies)
        else:
            gradients, sums = self._accumulate(batch, weights, copies)
        return {**self._rule.totals(sums), **self._rule.apply(gradients)}

    def compile_step(self, element_spec: Tensors) -> None:
        tf.function(self.update, autograph=False).get_concrete_function(element_spec)

        @tf.function(autograph=False, jit_compile=True)
        def whole_update_with_zeros() -> None:
            self.update({name: tf.zeros(spec.shape, spec.dtype) for name, spec in element_spec.items()})

        # XLA compiles a function when it is called first; its programs are those of training if a graph calls it.
        @tf.function(autograph=False)
        def update_with_zeros() -> None:
            micro_batch = {name: tf.zeros(spec.shape[1:], spec.dtype) for name, spec in element_spec.items()}
            weights = {name: tf.zeros([]) for name in self._rule.objective.losses}
            copies = [tf.zeros(variable.shape, tf.bfloat16) for variable in self._copies.variables]
            gradients, _ = self._compiled_gradients(micro_batch, weights, copies, tf.zeros([2], tf.int32))
            if self._rule.update.micro_batches > 1:  # accumulated gradients are dense and float32
                gradients = [dense_float32(gradient) for gradient in gradients]
            self._rule.apply(gradients)

        state = [*self._rule.variables, *self._rule.optimizer.variables()]
        values = [variable.numpy() for variable in state]
        (whole_update_with_zeros if self.one_program else update_with_zeros)()
        for variable, value in zip(state, values):  # weights decay without gradients, too
            variable.assign(value)

    def _gradients(
        self, batch: Tensors, weights: Tensors, copies: List[tf.Tensor], seed: tf.Tensor
    ) -> Tuple[List[tf.Tensor], Tensors]:
        """Return the gradients of one micro batch, tensors of shape (B, …), and the sums of the objective's terms."""
        with self._seeds.using(seed):  # around the backward pass too: recomputation must draw the same masks
            with tf.GradientTape() as tape, self._copies.using(copies):
                tape.watch(copies)
                outputs = self._model({name: batch[name] for name in self._model.input_names}, training=True)
                sums = self._rule.objective.sums(outputs, batch)
                loss = self._rule.scaled_loss(sums, weights)
            gradients, copy_gradients = tape.gradient(loss, (self._rule.variables, copies))
        return _with_copy_gradients(self._rule.variables, gradients, self._copies.variables, copy_gradients), sums

    def _micro_batch(
        self, batch: Tensors, weights: Tensors, copies: List[tf.Tensor], index: tf.Tensor
    ) -> Tuple[List[tf.Tensor], Tensors]:
        seed = self._rule.seed(self._run_seed, index)
        micro_batch = {name: values[index] for name, values in batch.items()}
        return self._compiled_gradients(micro_batch, weights, copies, seed)

    def _compute_at_once(
        self, batch: Tensors, weights: Tensors, copies: List[tf.Tensor]
    ) -> Tuple[List[tf.Tensor], Tensors]:
        """Return what :meth:`_accumulate` does; TensorFlow runs calls that do not depend on each other in parallel."""
        count, reduction = self._rule.update.micro_batches, self._rule.update.reduction
        computed = [self._micro_batch(batch, weights, copies, tf.constant(index)) for index in range(count)]
        # Not inlined, because TensorFlow would rewrite several additions as one operation without an order.
        add = tf.function(accumulation.add, autograph=False, experimental_attributes={"_noinline": True})
        totals = accumulation.initial(self._rule.variables)
        for index, (gradients, _) in enumerate(computed):
            totals = add(reduction, totals, gradients, tf.constant(index))
        sums = {name: tf.add_n([new[name] for _, new in computed]) for name in computed[0][1]}
        return accumulation.finish(reduction, totals, count), sums

    def _accumulate(self, batch: Tensors, weights: Tensors, copies: List[tf.Tensor]) -> Tuple[List[tf.Tensor], Tensors]:
        count, reduction = self._rule.update.micro_batches, self._rule.update.reduction
        totals = accumulation.initial(self._rule.variables)
        sums = {name: tf.zeros([]) for name in self._rule.objective.counts(batch)}

        def body(index: tf.Tensor, totals: List[tf.Tensor], sums: Tensors) -> Any:
            gradients, new = self._micro_batch(batch, weights, copies, index)
            totals = accumulation.add(reduction, totals, gradients, index)
            return index + 1, totals, {name: sums[name] + new[name] for name in sums}

        _, totals, sums = tf.while_loop(
            lambda index, *_: index < count, body, (tf.constant(0), totals, sums), parallel_iterations=1
        )
        return accumulation.finish(reduction, totals, count), sums


def _with_copy_gradients(
    variables: Sequence[tf.Variable],
    gradients: Sequence[Optional[tf.Tensor]],
    copied: Sequence[tf.Variable],
    copy_gradients: Sequence[tf.Tensor],
) -> List[tf.Tensor]:
    """Return the gradient of each variable: that of its direct uses, plus that of its bfloat16 copy if it has one."""
    others = {variable.ref(): gradient for variable, gradient in zip(copied, copy_gradients) if gradient is not None}
    joined = []
    for variable, gradient in zip(variables, gradients):
        other = others.get(variable.ref())
        if gradient is None:
            gradient = tf.zeros(variable.shape, variable.dtype) if other is None else other
        elif other is not None:
            gradient = _sum(gradient, tf.cast(other, gradient.dtype))
        joined.append(tf.convert_to_tensor(gradient))
    return joined


def _sum(gradient: Union[tf.Tensor, tf.IndexedSlices], dense: tf.Tensor) -> tf.Tensor:
    """Return the sum of two gradients; an embedding lookup's is sparse, and its rows are added to the dense one."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.tensor_scatter_nd_add(dense, gradient.indices[:, None], gradient.values)
    return gradient + dense
