"""Stock TensorFlow as a :class:`~execution.interface.Platform`."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Sequence

from execution.interface import Objective, Platform, Tensors, Update
from execution.software import layers, operations
from execution.software.randomness import SeedScope
from execution.software.sequential import SequentialEngine
from execution.software.trainable import TrainableModel
from keras_extensions.backend import keras, tf


class SoftwarePlatform(Platform):
    """Any CPU or GPU that TensorFlow sees.

    Args:
        seed: of dropout.
        xla: compile the training step with XLA.
        recompute: drop the activations inside each encoder layer and recompute them in the backward pass.
    """

    name = "software"

    def __init__(self, seed: int, xla: bool, recompute: bool):
        self._seed = seed
        self._xla = xla
        self._recompute = recompute
        self._seeds = SeedScope()

    def describe(self) -> str:
        devices = tf.config.list_physical_devices("GPU") or tf.config.list_physical_devices("CPU")
        kind = devices[0].device_type
        compiled = "XLA" if self._xla else "graph"
        return f"stock TensorFlow {tf.__version__} on {len(devices)} {kind}, {compiled}"

    def scope(self) -> ContextManager[Any]:
        return contextlib.nullcontext()

    def dropout(self, rate: float, name: str) -> keras.layers.Layer:
        return layers.Dropout(rate, self._seeds, name=name)

    def layer_normalization(self, epsilon: float, name: str) -> keras.layers.Layer:
        return layers.LayerNormalization(epsilon, name=name)

    def gelu(self, x: tf.Tensor, approximate: bool) -> tf.Tensor:
        return tf.nn.gelu(x, approximate=True) if approximate else operations.exact_gelu(x)

    def embedding_lookup(self, table: tf.Tensor, ids: tf.Tensor, serialization_factor: int = 1) -> tf.Tensor:
        return operations.embedding_lookup(table, ids)

    def serialized_matmul(self, x: tf.Tensor, table: tf.Tensor, serialization_factor: int = 1) -> tf.Tensor:
        return operations.serialized_matmul(x, table)

    def checkpointed(self, function: Callable[..., Any], *tensors: tf.Tensor) -> Any:
        return tf.recompute_grad(function)(*tensors) if self._recompute else function(*tensors)

    def outlined(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def model(self, inputs: Tensors, outputs: Tensors, stages: Sequence[Sequence[str]]) -> keras.Model:
        return TrainableModel(inputs=inputs, outputs=outputs)

    def compile(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        update: Update,
        updates_per_execution: int,
    ) -> None:
        engine = SequentialEngine(model, optimizer, objective, update, self._seeds, self._seed, self._xla)
        model.prepare(objective, engine)
        model.compile(optimizer=optimizer, steps_per_execution=updates_per_execution)

    def compile_step(self, model: keras.Model, element_spec: Any) -> None:
        model.engine.compile_step(element_spec)
