"""The pipeline as one graph: a loop over the schedule's iterations, in which loop variables connect the stages.

The graph does not order independent jobs of an iteration, so TensorFlow starts each one on its stage's device as soon
as its inputs are available.

A stage keeps only the input of a forward pass, and recomputes the rest in the backward pass.

A  micro batches of an update      B  samples of a micro batch
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from execution.interface import Tensors
from execution.software.dropout import DropoutSeeds
from execution.software.trainable_model import TrainableModel
from execution.software.training_step import UpdateRule
from keras_extensions.backend import keras, tf
from optimization import accumulation
from pipeline.schedule import FORWARD, Schedule

Gradients = List[tf.Tensor]


class StageTensors(NamedTuple):
    """Names of a stage's tensors: inputs of the model, and what it receives from and sends to its neighbours."""

    from_batch: Tuple[str, ...]
    received: Tuple[str, ...]
    sent: Tuple[str, ...]


def stage_tensors(
    stages: Sequence[Sequence[keras.layers.Layer]], model_inputs: Sequence[str], outputs: Sequence[str]
) -> List[StageTensors]:
    """Return the tensors that cross from stage to stage, also those that only a later stage reads."""
    tensors: List[StageTensors] = []
    needed = tuple(outputs)
    for blocks in reversed(stages):
        sent = needed
        for block in reversed(blocks):
            needed = tuple(name for name in needed if name not in block.writes)
            needed += tuple(name for name in block.reads if name not in needed)
        from_batch = tuple(name for name in needed if name in model_inputs)
        needed = tuple(name for name in needed if name not in model_inputs)
        tensors.insert(0, StageTensors(from_batch, needed, sent))
    assert not needed, f"no block writes {', '.join(needed)}"
    return tensors


class Stage:
    """The blocks of one stage on one device, as functions: forward, backward, and both at once for the last stage.

    Each function is compiled separately, because a compiled function can use the weights of one device only.

    Attributes:
        variables: the trainable weights that the stage uses, known after :meth:`trace`.
    """

    def __init__(
        self,
        blocks: Sequence[keras.layers.Layer],
        tensors: StageTensors,
        constants: Sequence[str],
        device: str,
        rule: UpdateRule,
        seeds: DropoutSeeds,
        xla: bool,
    ):
        self.tensors = tensors
        self.device = device
        self.variables: List[tf.Variable] = []
        self._blocks = blocks
        self._rule = rule
        self._seeds = seeds
        self.received = [name for name in tensors.received if name not in constants]
        self.sent = [name for name in tensors.sent if name not in constants]
        self.forward = tf.function(self._forward, jit_compile=xla, autograph=False)
        self.backward = tf.function(self._backward, jit_compile=xla, autograph=False)
        self.forward_and_backward = tf.function(self._forward_and_backward, jit_compile=xla, autograph=False)

    def trace(self, batch: Tensors, received: Tensors) -> Tensors:
        """Find the weights that the stage uses, and return the ``TensorSpec`` of each sent tensor."""
        with tf.device(self.device):
            seed = tf.TensorSpec([2], tf.int32)
            traced = tf.function(self._forward, autograph=False).get_concrete_function(batch, received, seed)
        self.variables = list(traced.trainable_variables)
        return {name: tf.TensorSpec(value.shape, value.dtype) for name, value in traced.structured_outputs.items()}

    def compile(self, batch: Tensors, received: Tensors, weights: Tensors, last: bool) -> None:
        """Compile the stage's functions by calling them with any tensors, which changes no weight."""
        seed, read = tf.zeros([2], tf.int32), {name: batch[name] for name in self.tensors.from_batch}
        with tf.device(self.device):
            if last:
                self.forward_and_backward(batch, received, seed, weights)
            else:
                sent = self.forward(read, received, seed)
                self.backward(read, received, seed, {name: sent[name] for name in self.sent})

    def _forward(self, batch: Tensors, received: Tensors, seed: tf.Tensor) -> Tensors:
        with self._seeds.using(seed):
            return self._run(batch, received)

    def _backward(
        self, batch: Tensors, received: Tensors, seed: tf.Tensor, sent_gradients: Tensors
    ) -> Tuple[Tensors, Gradients]:
        """Return the gradients of the received tensors and of the weights, given those of the sent tensors."""
        with self._seeds.using(seed):  # also around the backward pass, because recomputation must draw the same masks
            with tf.GradientTape() as tape:
                tape.watch([received[name] for name in self.received])
                sent = self._run(batch, received)
            targets = [sent[name] for name in self.sent]
            return self._gradients(tape, targets, received, [sent_gradients[name] for name in self.sent])

    def _forward_and_backward(
        self, batch: Tensors, received: Tensors, seed: tf.Tensor, weights: Tensors
    ) -> Tuple[Tensors, Gradients, Tensors]:
        """Return the gradients of the received tensors and of the weights, and the sums of the objective's terms."""
        with self._seeds.using(seed):
            with tf.GradientTape() as tape:
                tape.watch([received[name] for name in self.received])
                sums = self._rule.objective.sums(self._run(batch, received), batch)
                loss = self._rule.scaled_loss(sums, weights)
            received_gradients, gradients = self._gradients(tape, loss, received, None)
        return received_gradients, gradients, sums

    def _run(self, batch: Tensors, received: Tensors) -> Tensors:
        tensors: Dict[str, Any] = {**batch, **received}
        for block in self._blocks:
            inputs = {name: tensors[name] for name in block.reads}
            takes_training = "training" in inspect.signature(block.call).parameters
            tensors.update(block(inputs, training=True) if takes_training else block(inputs))
        return {name: tensors[name] for name in self.tensors.sent}

    def _gradients(
        self, tape: tf.GradientTape, targets: Any, received: Tensors, target_gradients: Optional[Gradients]
    ) -> Tuple[Tensors, Gradients]:
        sources = ([received[name] for name in self.received], self.variables)
        received_gradients, gradients = tape.gradient(
            targets, sources, output_gradients=target_gradients, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return dict(zip(self.received, received_gradients)), [tf.convert_to_tensor(one) for one in gradients]


class State(NamedTuple):
    """The loop variables; ``inputs`` are what each stage has received, the newest first, as long as it is needed."""

    inputs: List[List[Tensors]]
    sent: List[Tensors]
    returned: List[Tensors]
    gradients: List[Gradients]
    sums: Tensors


class Batch(NamedTuple):
    """All micro batches of an update, tensors of shape (A, B, …), and the weights of the losses."""

    tensors: Tensors
    weights: Tensors

    def micro_batch(self, number: tf.Tensor, names: Optional[Sequence[str]] = None) -> Tensors:
        """Return one micro batch: the named tensors, or all if ``names`` is None."""
        return {name: self.tensors[name][number] for name in (self.tensors if names is None else names)}


class PipelineEngine:
    """Makes an update over stages on several devices; see :class:`execution.software.trainable_model.Engine`."""

    one_program = False

    def __init__(
        self,
        model: TrainableModel,
        devices: Sequence[str],
        schedule: Schedule,
        rule: UpdateRule,
        seeds: DropoutSeeds,
        run_seed: int,
        xla: bool,
        make_stage: Callable[..., Stage] = Stage,
    ):
        self._schedule = schedule
        self._rule = rule
        self._run_seed = run_seed
        self._xla = xla
        blocks = [[model.get_layer(name) for name in stage] for stage in model.stages]
        constants = [name for stage in blocks for block in stage for name in block.constants]
        tensors = stage_tensors(blocks, model.input_names, model.results)
        self._stages = [
            make_stage(part, names, constants, device, rule, seeds, xla)
            for part, names, device in zip(blocks, tensors, devices)
        ]
        self._links: List[Tensors] = []  # TensorSpec of what each stage receives, and of the model's outputs

    def update(self, batch: Tensors) -> Tensors:
        whole = Batch(batch, self._rule.loss_weights(batch))
        state = self._empty_state(batch)
        iterations = self._schedule.iterations(self._rule.update.micro_batches)
        _, state = tf.while_loop(
            lambda i, _: i < iterations,
            lambda i, state: (i + 1, self._iteration(i, state, whole)),
            (tf.constant(0), state),
            parallel_iterations=1,
        )
        return {**self._rule.totals(state.sums), **self._rule.apply(self._joined(state.gradients))}

    def compile_step(self, element_spec: Tensors) -> None:
        tf.function(self.update, autograph=False).get_concrete_function(element_spec)
        if self._xla:
            micro_batch = {name: tf.zeros(spec.shape[1:], spec.dtype) for name, spec in element_spec.items()}
            weights = {name: tf.zeros([]) for name in self._rule.objective.losses}
            for stage, links in zip(self._stages, self._links):
                stage.compile(micro_batch, zeros(links), weights, last=stage is self._stages[-1])

    def _empty_state(self, batch: Tensors) -> State:
        specs = {name: tf.TensorSpec(values.shape[1:], values.dtype) for name, values in batch.items()}
        self._links = [{}]
        with tf.init_scope():  # outside the graph that is being traced
            for stage in self._stages:
                read = {name: specs[name] for name in stage.tensors.from_batch}
                self._links.append(stage.trace(read, self._links[-1]))
        kept = [self._schedule.kept(number) - 1 for number in range(len(self._stages))]
        return State(
            inputs=[[zeros(links) for _ in range(count)] for links, count in zip(self._links, kept)],
            sent=[zeros(links) for links in self._links[1:-1]],
            returned=[zeros(self._received_specs(number)) for number in range(len(self._stages))],
            gradients=[accumulation.initial(stage.variables) for stage in self._stages],
            sums={name: tf.zeros([]) for name in self._rule.objective.counts(batch)},
        )

    def _iteration(self, i: tf.Tensor, old: State, batch: Batch) -> State:
        new = State([], [{} for _ in old.sent], [{} for _ in old.returned], list(old.gradients), dict(old.sums))
        for phase in self._schedule.phases:
            for kind, stage in phase:
                if kind == FORWARD:
                    new.sent[stage] = self._forward(i, stage, self._received(stage, old, new), batch)
                else:
                    new = self._backward(i, stage, old, new, batch)
        for stage, kept in enumerate(old.inputs):
            new.inputs.append([self._received(stage, old, new), *kept][: len(kept)])
        return new

    def _received(self, stage: int, old: State, new: State) -> Tensors:
        if stage == 0:
            return {}
        is_delayed = self._schedule.forward[stage] > self._schedule.forward[stage - 1]
        return (old if is_delayed else new).sent[stage - 1]

    def _forward(self, i: tf.Tensor, number: int, received: Tensors, batch: Batch) -> Tensors:
        stage, micro_batch = self._stages[number], i - self._schedule.forward[number]

        def work() -> Tensors:
            read = batch.micro_batch(micro_batch, stage.tensors.from_batch)
            return stage.forward(read, received, self._rule.seed(self._run_seed, micro_batch))

        with tf.device(stage.device):
            return tf.cond(self._is_due(micro_batch), work, lambda: zeros(self._links[number + 1]))

    def _backward(self, i: tf.Tensor, number: int, old: State, new: State, batch: Batch) -> State:
        schedule, stage, micro_batch = self._schedule, self._stages[number], i - self._schedule.backward[number]
        age = schedule.backward[number] - schedule.forward[number]
        received = old.inputs[number][age - 1] if age else self._received(number, old, new)
        accumulated = new.gradients[number]
        last = number + 1 == len(self._stages)

        def work() -> Tuple[Tensors, Gradients, Tensors]:
            seed = self._rule.seed(self._run_seed, micro_batch)
            sums: Tensors = {}
            if last:
                labelled = batch.micro_batch(micro_batch)
                returned, gradients, sums = stage.forward_and_backward(labelled, received, seed, batch.weights)
            else:
                read = batch.micro_batch(micro_batch, stage.tensors.from_batch)
                is_delayed = schedule.backward[number] > schedule.backward[number + 1]
                sent_gradients = (old if is_delayed else new).returned[number + 1]
                returned, gradients = stage.backward(read, received, seed, sent_gradients)
            added = accumulation.add(self._rule.update.reduction, accumulated, gradients, micro_batch)
            return returned, added, {name: new.sums[name] + sums[name] for name in sums}

        def idle() -> Tuple[Tensors, Gradients, Tensors]:
            return zeros(self._received_specs(number)), accumulated, new.sums if last else {}

        with tf.device(stage.device):
            returned, added, sums = tf.cond(self._is_due(micro_batch), work, idle)
        new.returned[number] = returned
        new.gradients[number] = added
        return new._replace(sums=sums) if last else new

    def _received_specs(self, number: int) -> Tensors:
        """Return the ``TensorSpec`` of each received tensor of a stage that has a gradient."""
        return {name: self._links[number][name] for name in self._stages[number].received}

    def _is_due(self, micro_batch: tf.Tensor) -> tf.Tensor:
        """Return whether there is a micro batch of this number; False while the pipeline fills or drains."""
        return tf.logical_and(micro_batch >= 0, micro_batch < self._rule.update.micro_batches)

    def _joined(self, gradients: List[Gradients]) -> Gradients:
        """Return gradients in the order of the rule's variables; for a weight that stages share, their sum."""
        sums: Dict[int, tf.Tensor] = {}
        for stage, accumulated in zip(self._stages, gradients):
            update = self._rule.update
            reduced = accumulation.finish(update.reduction, accumulated, update.micro_batches)
            for variable, gradient in zip(stage.variables, reduced):
                key = id(variable.handle)  # in mixed precision Keras wraps a variable; both have one handle
                sums[key] = sums[key] + gradient if key in sums else gradient
        return [sums.get(id(variable.handle), tf.zeros(variable.shape)) for variable in self._rule.variables]


def zeros(specs: Dict[str, Any]) -> Tensors:
    return {name: tf.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}
