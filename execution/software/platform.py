"""Stock TensorFlow as a :class:`~execution.interface.Platform`."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Dict, NamedTuple, Optional, Sequence

from execution.interface import Objective, OptimizerSettings, Platform, Tensors, Update
from execution.processes import SINGLE_PROCESS, Processes
from execution.software import layers, operations
from execution.software.exceptions import Watch, WatchedObjective, exceptions_told
from execution.software.pipeline.engine import PipelineEngine
from execution.software.pipeline.schedule import make_schedule
from execution.software.precision import Numerics
from execution.software.randomness import SeedScope
from execution.software.sequential import SequentialEngine
from execution.software.trainable import Engine, TrainableModel
from execution.software.update_rule import UpdateRule
from keras_extensions.backend import keras, tf
from keras_extensions.policy import layers_in
from optimization.loss_scaling import AutomaticLossScale
from optimization.optimizers import LAMB, AdamW, DecoupledOptimizer
from optimization.sharding import Shards

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
IN_FLOAT32 = Numerics()


class SoftwarePlatform(Platform):
    """Any CPU or GPU that TensorFlow sees.

    Args:
        seed: of dropout.
        xla: compile the training step with XLA.
        recompute: drop the activations inside each encoder layer and recompute them in the backward pass.
        layout: of pipeline stages over devices; none: one device.
        numerics: number formats, and what is done about their limits.
        processes: that share each update; they must have joined.
        sharded: keep a part of the optimizer's moments in each process.
        state_device: name of the device that keeps the moments; None: each weight's own.
    """

    name = "software"

    def __init__(
        self,
        seed: int,
        xla: bool,
        recompute: bool,
        layout: PipelineLayout = ONE_DEVICE,
        numerics: Numerics = IN_FLOAT32,
        processes: Processes = SINGLE_PROCESS,
        sharded: bool = False,
        state_device: Optional[str] = None,
    ):
        self._seed = seed
        self._xla = xla and not numerics.fp_exceptions  # compiled, tensors cannot be looked at
        self._recompute = recompute
        self._layout = layout
        self._numerics = numerics
        self.precision = numerics.precision
        self.pipelined = layout.is_spread
        self.on_gpu = bool(tf.config.get_visible_devices("GPU"))
        self._processes = processes
        self._shards = shards_of(processes) if sharded else None
        self._state_device = state_device
        self._seeds = SeedScope()
        self._watch = Watch(numerics.fp_exceptions)
        self._others: Dict[str, Any] = {}

    def describe(self) -> str:
        devices = tf.config.list_physical_devices("GPU") or tf.config.list_physical_devices("CPU")
        kind = devices[0].device_type
        compiled = "XLA" if self._xla else "graph"
        text = f"stock TensorFlow {tf.__version__} on {len(devices)} {kind}, {compiled}, {self._numerics.describe()}"
        if self._numerics.fp_exceptions:
            text += "; stops at the first NaN or infinity (fp_exceptions), for which nothing is compiled with XLA"
        if not self._processes.is_single:
            text = f"{self._processes.count} processes, each {text}"
        if not self._layout.is_spread:
            return text
        return f"{text}; {self._layout.schedule} pipeline, stages on {', '.join(self._layout.devices)}"

    def scope(self) -> ContextManager[Any]:
        return layers_in(self.precision) if self._numerics.is_narrow else contextlib.nullcontext()

    def stage(self, number: int) -> ContextManager[Any]:
        return tf.device(self._layout.devices[number]) if self._layout.is_spread else contextlib.nullcontext()

    def dropout(self, rate: float, name: str) -> keras.layers.Layer:
        return layers.Dropout(rate, self._seeds, name=name)

    def layer_normalization(self, epsilon: float, name: str) -> keras.layers.Layer:
        return layers.LayerNormalization(epsilon, name=name, watch=self._watch)

    def gelu(self, x: tf.Tensor, approximate: bool) -> tf.Tensor:
        return self._watch(operations.approximate_gelu(x) if approximate else operations.exact_gelu(x))

    def embedding_lookup(self, table: tf.Tensor, ids: tf.Tensor, serialization_factor: int = 1) -> tf.Tensor:
        return self._watch(operations.embedding_lookup(table, ids))

    def serialized_matmul(self, x: tf.Tensor, table: tf.Tensor, serialization_factor: int = 1) -> tf.Tensor:
        return self._watch(operations.serialized_matmul(x, table))

    def softmax(self, scores: tf.Tensor) -> tf.Tensor:
        return self._watch(operations.softmax(scores))

    def checkpointed(self, function: Callable[..., Any], *tensors: tf.Tensor) -> Any:
        return tf.recompute_grad(function)(*tensors) if self._recompute else function(*tensors)

    def outlined(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def runs_host_code(self) -> bool:
        return not self._xla and not tf.config.get_visible_devices("GPU")

    def optimizer(self, settings: OptimizerSettings) -> keras.optimizers.Optimizer:
        rounded = self._numerics.is_narrow and self._numerics.stochastic_rounding
        return OPTIMIZERS[settings.name](
            learning_rate=settings.learning_rate,
            weight_decay_rate=settings.weight_decay_rate,
            beta_1=settings.beta_1,
            beta_2=settings.beta_2,
            epsilon=settings.epsilon,
            global_clipnorm=settings.max_gradient_norm,
            rounding_seed=self._seed & 0x7FFFFFFF if rounded else None,
            shards=self._shards,
            state_device=self._state_device,
        )

    def model(self, inputs: Tensors, outputs: Tensors, stages: Sequence[Sequence[str]]) -> keras.Model:
        model = TrainableModel(inputs=inputs, outputs=outputs)
        model.lay_out(stages, tuple(outputs))
        self._watch.model = model.name
        return model

    def compile(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        update: Update,
        updates_per_execution: int,
    ) -> None:
        if self._watch.active:
            self._watch.backward = not update.adaptive_loss_scale
            objective = WatchedObjective(objective, self._watch)
        collectives = self._processes.collectives
        rule = UpdateRule(optimizer, objective, update, model.trainable_variables, self.precision, collectives)
        self._others = {"loss_scale": rule.loss_scale} if isinstance(rule.loss_scale, AutomaticLossScale) else {}
        engine = self._engine(model, rule)
        model.prepare(objective, engine, rule.totals)
        model.compile(optimizer=optimizer, steps_per_execution=updates_per_execution)

    def compile_step(self, model: keras.Model, element_spec: Any) -> None:
        model.engine.compile_step(element_spec)

    def fit(self, model: keras.Model, data: Any, updates: int, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        with exceptions_told():
            super().fit(model, data, updates, callbacks)

    def predict(self, model: keras.Model, data: Any, callbacks: Sequence[keras.callbacks.Callback]) -> Tensors:
        with exceptions_told():
            return super().predict(model, data, callbacks)

    def other_state(self) -> Dict[str, Any]:
        return self._others

    def parts(self, optimizer: keras.optimizers.Optimizer) -> Any:
        return optimizer.parts() if isinstance(optimizer, DecoupledOptimizer) else None

    def _engine(self, model: keras.Model, rule: UpdateRule) -> Engine:
        if not self._layout.is_spread:
            return SequentialEngine(model, rule, self._seeds, self._seed, self._xla)
        schedule = make_schedule(self._layout.schedule, len(model.stages))
        return PipelineEngine(model, self._layout.devices, schedule, rule, self._seeds, self._seed, self._xla)


def shards_of(processes: Processes) -> Optional[Shards]:
    """One shard of the optimizer's state for each process; None where there is one process only."""
    collectives = processes.collectives
    if collectives is None:
        return None
    return Shards(processes.count, processes.index, collectives.total, collectives.gathered)
