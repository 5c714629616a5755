"""One pipeline stage as functions of tensors: forward, backward, and both at once for the last stage.

A backward pass begins with the stage's input, which is all that is kept of a forward pass, and recomputes the rest.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from execution.interface import Tensors
from execution.software.pipeline.partition import StageTensors
from execution.software.randomness import SeedScope
from execution.software.update_rule import UpdateRule
from keras_extensions.backend import keras, tf

Gradients = List[tf.Tensor]


class Stage:
    """The blocks of one stage, on one device.

    Each function is compiled by itself, because a compiled function may touch only the weights of its own device.

    Args:
        blocks: in order.
        tensors: what the stage takes and gives.
        constants: names of tensors that no weight has an influence on, and that so need no gradient.
        device: name of the device that holds the stage's weights and does its work.
        rule: gives the loss.
        seeds: of dropout.
        xla: compile the stage's functions with XLA.
    """

    def __init__(
        self,
        blocks: Sequence[keras.layers.Layer],
        tensors: StageTensors,
        constants: Sequence[str],
        device: str,
        rule: UpdateRule,
        seeds: SeedScope,
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
        """Learn which weights the stage uses.

        Args:
            batch, received: specifications of its tensors.

        Returns:
            Those of what it sends.
        """
        with tf.device(self.device):
            seed = tf.TensorSpec([2], tf.int32)
            traced = tf.function(self._forward, autograph=False).get_concrete_function(batch, received, seed)
        self.variables = list(traced.trainable_variables)
        return {name: tf.TensorSpec(value.shape, value.dtype) for name, value in traced.structured_outputs.items()}

    def compile(self, batch: Tensors, received: Tensors, weights: Tensors, last: bool) -> None:
        """Compile the stage's functions, by calling them; that changes no weight.

        Args:
            batch, received, weights: of the forms that training has.
            last: whether this is the last stage.
        """
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
        """Gradients of what was received and of the stage's weights, from those of what it sent."""
        with self._seeds.using(seed):  # around the backward pass too: recomputation must draw the same masks
            with tf.GradientTape() as tape:
                self._watch(tape, received)
                sent = self._run(batch, received)
            targets = [sent[name] for name in self.sent]
            return self._gradients(tape, targets, received, [sent_gradients[name] for name in self.sent])

    def _forward_and_backward(
        self, batch: Tensors, received: Tensors, seed: tf.Tensor, weights: Tensors
    ) -> Tuple[Tensors, Gradients, Tensors]:
        """The last stage: gradients of what was received and of its weights, and the objective's sums."""
        with self._seeds.using(seed):
            with tf.GradientTape() as tape:
                self._watch(tape, received)
                sums = self._rule.objective.sums(self._run(batch, received), batch)
                loss = self._rule.scaled_loss(sums, weights)
            into, of_weights = self._gradients(tape, loss, received, None)
        return into, of_weights, sums

    def _run(self, batch: Tensors, received: Tensors) -> Tensors:
        tensors: Dict[str, Any] = {**batch, **received}
        for block in self._blocks:
            inputs = {name: tensors[name] for name in block.reads}
            tensors.update(block(inputs, training=True) if takes_training(block.call) else block(inputs))
        return {name: tensors[name] for name in self.tensors.sent}

    def _watch(self, tape: tf.GradientTape, received: Tensors) -> None:
        tape.watch([received[name] for name in self.received])

    def _gradients(
        self, tape: tf.GradientTape, targets: Any, received: Tensors, given: Optional[Gradients]
    ) -> Tuple[Tensors, Gradients]:
        sources = ([received[name] for name in self.received], self.variables)
        into, of_weights = tape.gradient(
            targets, sources, output_gradients=given, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return dict(zip(self.received, into)), [tf.convert_to_tensor(gradient) for gradient in of_weights]


def takes_training(call: Callable[..., Any]) -> bool:
    """Whether a layer's ``call`` distinguishes training."""
    return "training" in inspect.signature(call).parameters
