"""The pipeline in one graph: a loop over the schedule's iterations, with stages linked by the loop's variables.

Independent jobs of an iteration run at the same time, because nothing in the graph orders them: TensorFlow starts each
as soon as its inputs are there, on its stage's device.

A micro batches per update · B micro batch · S stages
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type

from execution.interface import Tensors
from execution.software.pipeline.partition import stage_tensors
from execution.software.pipeline.schedule import FORWARD, Schedule
from execution.software.pipeline.stage import Stage
from execution.software.randomness import SeedScope, micro_batch_seed
from execution.software.trainable import TrainableModel
from execution.software.update_rule import UpdateRule
from keras_extensions.backend import tf
from optimization import accumulation


class State(NamedTuple):
    """What goes from iteration to iteration.

    Attributes:
        inputs: by stage, what it received in the last iterations, the newest first, as long as it is needed.
        sent: by stage, what it gave forward in the last iteration.
        returned: by stage, the gradients of what it had received that it gave backward in the last iteration.
        gradients: by stage, of its weights, accumulated.
        sums: of the objective's terms.
    """

    inputs: List[List[Tensors]]
    sent: List[Tensors]
    returned: List[Tensors]
    gradients: List[List[tf.Tensor]]
    sums: Tensors


class Batch(NamedTuple):
    """All micro batches of an update, and the factors on its losses."""

    tensors: Tensors
    weights: Tensors

    def micro_batch(self, number: tf.Tensor, names: Optional[Sequence[str]] = None) -> Tensors:
        """Some or all tensors of one micro batch."""
        return {name: self.tensors[name][number] for name in (self.tensors if names is None else names)}


class PipelineEngine:
    """Gradients of the A micro batches of an update over stages on several devices, and one optimizer update.

    Args:
        model: knows its stages.
        devices: name of the device of each stage.
        schedule: when which stage works on which micro batch.
        rule: what is done with the gradients.
        seeds: of dropout.
        run_seed: from which the seed of every micro batch follows.
        xla: compile each stage's functions.
        make_stage: class of the stages; one that measures, for example.
    """

    def __init__(
        self,
        model: TrainableModel,
        devices: Sequence[str],
        schedule: Schedule,
        rule: UpdateRule,
        seeds: SeedScope,
        run_seed: int,
        xla: bool,
        make_stage: Type[Stage] = Stage,
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

    def update(self, batch: Tensors) -> Tensors:
        """See :class:`execution.software.trainable.Engine`."""
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
        """See :class:`execution.software.trainable.Engine`."""
        tf.function(self.update, autograph=False).get_concrete_function(element_spec)
        if self._xla:
            micro_batch = {name: tf.zeros(spec.shape[1:], spec.dtype) for name, spec in element_spec.items()}
            weights = {name: tf.zeros([]) for name in self._rule.objective.losses}
            for stage, links in zip(self._stages, self._links):
                stage.compile(micro_batch, zeros(links), weights, last=stage is self._stages[-1])

    def _empty_state(self, batch: Tensors) -> State:
        specs = {name: tf.TensorSpec(values.shape[1:], values.dtype) for name, values in batch.items()}
        self._links = [{}]  # by stage, the forms of what it receives
        with tf.init_scope():  # what stages use is found once, outside the graph that is being traced
            for stage in self._stages:
                read = {name: specs[name] for name in stage.tensors.from_batch}
                self._links.append(stage.trace(read, self._links[-1]))
        kept = [self._schedule.kept(number) - 1 for number in range(len(self._stages))]
        return State(
            inputs=[[zeros(links) for _ in range(count)] for links, count in zip(self._links, kept)],
            sent=[zeros(links) for links in self._links[1:-1]],
            returned=[zeros(self._differentiable(number)) for number in range(len(self._stages))],
            gradients=[accumulation.initial(stage.variables) for stage in self._stages],
            sums={name: tf.zeros([]) for name in self._rule.objective.counts(batch)},
        )

    def _iteration(self, i: tf.Tensor, old: State, update: Batch) -> State:
        """One iteration of the schedule: its jobs in order, each on the results of earlier jobs or iterations."""
        new = State([], [{} for _ in old.sent], [{} for _ in old.returned], list(old.gradients), dict(old.sums))
        for phase in self._schedule.phases:
            for kind, stage in phase:
                if kind == FORWARD:
                    new.sent[stage] = self._forward(i, stage, self._received(stage, old, new), update)
                else:
                    new = self._backward(i, stage, old, new, update)
        for stage, kept in enumerate(old.inputs):
            new.inputs.append([self._received(stage, old, new), *kept][: len(kept)])
        return new

    def _received(self, stage: int, old: State, new: State) -> Tensors:
        """What a stage receives in this iteration."""
        if stage == 0:
            return {}
        behind = self._schedule.forward[stage] - self._schedule.forward[stage - 1]
        return (old if behind else new).sent[stage - 1]

    def _forward(self, i: tf.Tensor, number: int, received: Tensors, update: Batch) -> Tensors:
        stage, micro_batch = self._stages[number], i - self._schedule.forward[number]

        def work() -> Tensors:
            batch = update.micro_batch(micro_batch, stage.tensors.from_batch)
            return stage.forward(batch, received, self._seed(micro_batch))

        with tf.device(stage.device):
            return tf.cond(self._is_due(micro_batch), work, lambda: zeros(self._links[number + 1]))

    def _backward(self, i: tf.Tensor, number: int, old: State, new: State, update: Batch) -> State:
        stage, micro_batch = self._stages[number], i - self._schedule.backward[number]
        age = self._schedule.backward[number] - self._schedule.forward[number]
        received = old.inputs[number][age - 1] if age else self._received(number, old, new)
        totals = new.gradients[number]
        last = number + 1 == len(self._stages)

        def work() -> Tuple[Tensors, List[tf.Tensor], Tensors]:
            seed = self._seed(micro_batch)
            if last:
                batch = update.micro_batch(micro_batch)
                into, gradients, sums = stage.forward_and_backward(batch, received, seed, update.weights)
            else:
                batch = update.micro_batch(micro_batch, stage.tensors.from_batch)
                behind = self._schedule.backward[number] - self._schedule.backward[number + 1]
                into, gradients = stage.backward(batch, received, seed, (old if behind else new).returned[number + 1])
                sums = {}
            added = accumulation.add(self._rule.update.reduction, totals, gradients, micro_batch)
            return into, added, {name: new.sums[name] + sums[name] for name in sums}

        def idle() -> Tuple[Tensors, List[tf.Tensor], Tensors]:
            return zeros(self._differentiable(number)), totals, new.sums if last else {}

        with tf.device(stage.device):
            into, added, sums = tf.cond(self._is_due(micro_batch), work, idle)
        new.returned[number] = into
        new.gradients[number] = added
        return new._replace(sums=sums) if last else new

    def _differentiable(self, number: int) -> Tensors:
        """The forms of what a stage receives and gives gradients of."""
        return {name: self._links[number][name] for name in self._stages[number].received}

    def _is_due(self, micro_batch: tf.Tensor) -> tf.Tensor:
        """False while the pipeline fills, and while it drains."""
        return tf.logical_and(micro_batch >= 0, micro_batch < self._rule.update.micro_batches)

    def _seed(self, micro_batch: tf.Tensor) -> tf.Tensor:
        number = micro_batch + self._rule.first_micro_batch if self._rule.first_micro_batch else micro_batch
        return micro_batch_seed(self._run_seed, self._rule.optimizer.iterations, number)

    def _joined(self, gradients: List[List[tf.Tensor]]) -> List[tf.Tensor]:
        """Gradients in the order of the rule's variables; those of a weight that stages share are added."""
        found: Dict[Any, tf.Tensor] = {}
        for stage, accumulated in zip(self._stages, gradients):
            update = self._rule.update
            reduced = accumulation.finish(update.reduction, accumulated, update.micro_batches)
            for variable, gradient in zip(stage.variables, reduced):
                key = variable.ref()
                found[key] = found[key] + gradient if key in found else gradient
        return [found.get(variable.ref(), tf.zeros(variable.shape)) for variable in self._rule.variables]


def zeros(specs: Dict[str, Any]) -> Tensors:
    """Zeros of these forms."""
    return {name: tf.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}
