"""Stock TensorFlow as a :class:`~execution.interface.Platform`."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, NamedTuple, Sequence

from execution.interface import Objective, OptimizerSettings, Platform, Tensors, Update
from execution.software import layers, operations
from execution.software.pipeline.engine import PipelineEngine
from execution.software.pipeline.schedule import make_schedule
from execution.software.randomness import SeedScope
from execution.software.sequential import SequentialEngine
from execution.software.trainable import Engine, TrainableModel
from execution.software.update_rule import UpdateRule
from keras_extensions.backend import keras, tf
from optimization.adamw import AdamW
from optimization.lamb import LAMB

OPTIMIZERS = {"AdamW": AdamW, "LAMB": LAMB}


class PipelineLayout(NamedTuple):
    """Where pipeline stages run.

    Attributes:
        devices: name of each stage's device.
        schedule: name of the schedule.
    """

    devices: Sequence[str] = ()
    schedule: str = "grouped"

    @property
    def is_spread(self) -> bool:
        """Whether there is more than one device; on one, stages in sequence are fastest."""
        return len(set(self.devices)) > 1


ONE_DEVICE = PipelineLayout()


class SoftwarePlatform(Platform):
    """Any CPU or GPU that TensorFlow sees.

    Args:
        seed: of dropout.
        xla: compile the training step with XLA.
        recompute: drop the activations inside each encoder layer and recompute them in the backward pass.
        layout: of pipeline stages over devices; none: one device.
    """

    name = "software"

    def __init__(self, seed: int, xla: bool, recompute: bool, layout: PipelineLayout = ONE_DEVICE):
        self._seed = seed
        self._xla = xla
        self._recompute = recompute
        self._layout = layout
        self._seeds = SeedScope()

    def describe(self) -> str:
        devices = tf.config.list_physical_devices("GPU") or tf.config.list_physical_devices("CPU")
        kind = devices[0].device_type
        compiled = "XLA" if self._xla else "graph"
        text = f"stock TensorFlow {tf.__version__} on {len(devices)} {kind}, {compiled}"
        if not self._layout.is_spread:
            return text
        return f"{text}; {self._layout.schedule} pipeline, stages on {', '.join(self._layout.devices)}"

    def scope(self) -> ContextManager[Any]:
        return contextlib.nullcontext()

    def stage(self, number: int) -> ContextManager[Any]:
        return tf.device(self._layout.devices[number]) if self._layout.is_spread else contextlib.nullcontext()

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

    def optimizer(self, settings: OptimizerSettings) -> keras.optimizers.Optimizer:
        return OPTIMIZERS[settings.name](
            learning_rate=settings.learning_rate,
            weight_decay_rate=settings.weight_decay_rate,
            beta_1=settings.beta_1,
            beta_2=settings.beta_2,
            epsilon=settings.epsilon,
            global_clipnorm=settings.max_gradient_norm,
        )

    def model(self, inputs: Tensors, outputs: Tensors, stages: Sequence[Sequence[str]]) -> keras.Model:
        model = TrainableModel(inputs=inputs, outputs=outputs)
        model.lay_out(stages, tuple(outputs))
        return model

    def compile(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        update: Update,
        updates_per_execution: int,
    ) -> None:
        rule = UpdateRule(optimizer, objective, update, model.trainable_variables)
        engine = self._engine(model, rule)
        model.prepare(objective, engine)
        model.compile(optimizer=optimizer, steps_per_execution=updates_per_execution)

    def compile_step(self, model: keras.Model, element_spec: Any) -> None:
        model.engine.compile_step(element_spec)

    def _engine(self, model: keras.Model, rule: UpdateRule) -> Engine:
        if not self._layout.is_spread:
            return SequentialEngine(model, rule, self._seeds, self._seed, self._xla)
        schedule = make_schedule(self._layout.schedule, len(model.stages))
        return PipelineEngine(model, self._layout.devices, schedule, rule, self._seeds, self._seed, self._xla)
