"""The platform of stock TensorFlow on CPUs and GPUs."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Dict, Optional, Sequence, Tuple, Type

from execution.interface import Objective, OptimizerSettings, Platform, Progress, Tensors, Update
from execution.parts import Attention, LinearDropoutNorm
from execution.processes import SINGLE_PROCESS, Processes
from execution.software import fused, layers
from execution.software.devices import on_gpu
from execution.software.dropout import Dropout, DropoutSeeds
from execution.software.precision import (
    BFLOAT16,
    FLOAT32,
    MIXED,
    CheckedObjective,
    FiniteCheck,
    Numerics,
    WeightCopies,
    failed_checks_reported,
)
from execution.software.trainable_model import Engine, TrainableModel
from execution.software.training_step import SequentialEngine, UpdateRule
from keras_extensions.backend import keras, layers_in, tf
from optimization.loss_scaling import AutomaticLossScale
from optimization.muon import Muon
from optimization.optimizers import LAMB, AdamW
from optimization.sharding import ShardedMoments, Shards

OPTIMIZERS = {"AdamW": AdamW, "LAMB": LAMB, "Muon": Muon}
IN_FLOAT32 = Numerics()


class SoftwarePlatform(Platform):
    """Any CPU or GPU that TensorFlow supports.

    Args:
        processes: the processes that share each update; they must have joined.
        fused_float32: whether XLA compiles what lies between the products in float32, too; only without ``xla``.
    """

    name = "software"

    def __init__(
        self,
        seed: int,
        xla: bool,
        recompute: bool,
        parallel_micro_batches: int = 1,
        numerics: Numerics = IN_FLOAT32,
        processes: Processes = SINGLE_PROCESS,
        sharded: bool = False,
        state_device: Optional[str] = None,
        fused_float32: bool = False,
    ):
        self._seed = seed
        self._xla = xla and not numerics.fp_exceptions  # compiled code cannot check its tensors
        self._recompute = recompute
        self._parallel = parallel_micro_batches
        self._numerics = numerics
        self.precision = numerics.precision
        self.on_gpu = on_gpu()
        self._processes = processes
        self._shards: Optional[Shards] = None
        if sharded and processes.collectives is not None:
            collectives = processes.collectives
            self._shards = Shards(processes.count, processes.index, collectives.all_reduce_sum, collectives.all_gather)
        self._state_device = state_device
        self._dropout_seeds = DropoutSeeds()
        self._check = FiniteCheck(numerics.fp_exceptions)
        self._other_state: Dict[str, Any] = {}  # saved in checkpoints with weights and moments: the loss scale
        # Whether layers use fused operations.
        self._fuses = (numerics.is_mixed or fused_float32) and not numerics.fp_exceptions
        self._copies = WeightCopies()  # of float32 weights in bfloat16

    def describe(self) -> str:
        devices = tf.config.get_visible_devices("GPU") or tf.config.get_visible_devices("CPU")
        kind = devices[0].device_type
        compiled = "XLA" if self._xla else "graph with parts in XLA" if self._fuses else "graph"
        text = f"stock TensorFlow {tf.__version__} on {len(devices)} {kind}, {compiled}, {self._numerics.describe()}"
        if self._numerics.fp_exceptions:
            text += "; stops at the first NaN or infinity (fp_exceptions), so nothing is compiled with XLA"
        if self._parallel > 1:
            text += f", {self._parallel} micro batches at a time"
        if not self._processes.is_single:
            text = f"{self._processes.count} processes, each {text}"
        return text

    def scope(self) -> ContextManager[Any]:
        return layers_in(self.precision) if self.precision != FLOAT32 else contextlib.nullcontext()

    def dropout(self, rate: float, name: str) -> keras.layers.Layer:
        return (fused.Dropout if self._fuses else Dropout)(rate, self._dropout_seeds, name=name)

    def layer_normalization(self, epsilon: float, name: str) -> keras.layers.Layer:
        return (fused if self._fuses else layers).LayerNormalization(epsilon, name=name, check=self._check)

    def dense(self, units: int, use_bias: bool, initializer: str, name: str) -> keras.layers.Layer:
        if not self._fuses:
            return super().dense(units, use_bias, initializer, name)
        return fused.Linear(units, self._copies, use_bias=use_bias, kernel_initializer=initializer, name=name)

    def joined(self, layers: Sequence[keras.layers.Layer], x: tf.Tensor) -> Optional[tf.Tensor]:
        if self.on_gpu and all(isinstance(layer, fused.Linear) and layer.built for layer in layers):
            return fused.joined(layers, x)
        return super().joined(layers, x)

    def linear_gelu(self, units: int, approximate: bool, initializer: str, name: str) -> keras.layers.Layer:
        if not self._fuses:
            return super().linear_gelu(units, approximate, initializer, name)
        return fused.LinearGelu(units, approximate, self._copies, kernel_initializer=initializer, name=name)

    def linear_before_norm(
        self, units: int, use_bias: bool, initializer: str
    ) -> Tuple[Type[LinearDropoutNorm], keras.layers.Layer]:
        if not self._fuses:
            return super().linear_before_norm(units, use_bias, initializer)
        options = {"use_bias": use_bias, "kernel_initializer": initializer, "name": "dense"}
        return fused.LinearDropoutNorm, fused.Product(units, self._copies, **options)

    def attention(self, rate: float, name: str) -> Attention:
        kind = fused.Attention if self._fuses else Attention
        return kind(self.dropout(rate, name="dropout"), self.softmax, name=name)

    def gelu(self, x: tf.Tensor, approximate: bool) -> tf.Tensor:
        return self._check(layers.approximate_gelu(x) if approximate else layers.exact_gelu(x))

    def embedding_lookup(self, table: tf.Tensor, ids: tf.Tensor, serialization_factor: int = 1) -> tf.Tensor:
        if self._numerics.is_mixed:  # its gradient is sparse, and is added to the head's dense one in float32
            return self._check(tf.cast(tf.gather(table, ids), tf.bfloat16))
        return self._check(layers.embedding_lookup(table, ids))

    def factor(self, weight: tf.Variable) -> tf.Tensor:
        return self._copies.cast(weight, tf.bfloat16) if self._numerics.is_mixed else super().factor(weight)

    def serialized_matmul(self, x: tf.Tensor, table: tf.Tensor, serialization_factor: int = 1) -> tf.Tensor:
        return self._check(layers.serialized_matmul(x, table))

    def softmax(self, scores: tf.Tensor) -> tf.Tensor:
        return self._check(layers.softmax(scores))

    def cross_entropy(self, scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return (fused.cross_entropy if self._fuses else super().cross_entropy)(scores, labels)

    def checkpointed(self, function: Callable[..., Any], *tensors: tf.Tensor) -> Any:
        return tf.recompute_grad(function)(*tensors) if self._recompute else function(*tensors)

    def outlined(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def runs_host_code(self) -> bool:
        return not self._xla and not self.on_gpu

    def optimizer(self, settings: OptimizerSettings) -> keras.optimizers.Optimizer:
        rounded = self._numerics.is_low_precision and self._numerics.stochastic_rounding
        options: Dict[str, Any] = {}
        if settings.name == "Muon":
            dtype = "bfloat16" if self.precision in (BFLOAT16, MIXED) else FLOAT32
            options = {"matrices": settings.matrices, "scale": settings.muon_scale, "product_dtype": dtype}
        return OPTIMIZERS[settings.name](
            learning_rate=settings.learning_rate,
            weight_decay_rate=settings.weight_decay_rate,
            published_decay=settings.published_decay,
            beta_1=settings.beta_1,
            beta_2=settings.beta_2,
            epsilon=settings.epsilon,
            global_clipnorm=settings.max_gradient_norm,
            rounding_seed=self._seed & 0x7FFFFFFF if rounded else None,
            shards=self._shards,
            state_device=self._state_device,
            **options,
        )

    def model(self, inputs: Tensors, outputs: Tensors, stages: Sequence[Sequence[str]]) -> keras.Model:
        model = TrainableModel(inputs=inputs, outputs=outputs)
        model.set_stages(stages, tuple(outputs))
        self._check.model = model.name
        return model

    def compile(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        update: Update,
        updates_per_call: int,
    ) -> None:
        if self._check.active:
            self._check.backward = not update.adaptive_loss_scale
            objective = CheckedObjective(objective, self._check)
        collectives = self._processes.collectives
        # XLA compiles the update of all weights at once, unless devices or processes exchange tensors.
        is_local = not (self.pipelined or self._state_device or self._shards or collectives)
        rule = UpdateRule(
            optimizer,
            objective,
            update,
            model.trainable_variables,
            self.precision,
            collectives,
            xla=is_local and (self._xla if self.on_gpu else self._fuses),
            on_gpu=self.on_gpu,
        )
        self._other_state = {"loss_scale": rule.loss_scale} if isinstance(rule.loss_scale, AutomaticLossScale) else {}
        model.prepare(objective, self._engine(model, rule), rule.totals)
        model.compile(optimizer=optimizer)

    def compile_evaluation(self, model: keras.Model, objective: Objective) -> None:
        model.measure(objective)
        model.compile()

    def _engine(self, model: keras.Model, rule: UpdateRule) -> Engine:
        # A recomputed function propagates no gradients to tensors from outside, such as the weights' copies.
        has_copies = self._numerics.is_mixed and self._fuses and not self._recompute
        copies = self._copies if has_copies else WeightCopies()
        one_program = self._xla and self.on_gpu and self._processes.collectives is None and self._state_device is None
        return SequentialEngine(
            model, rule, self._dropout_seeds, self._seed, self._xla, self._parallel, copies, one_program
        )

    def compile_step(self, model: keras.Model, element_spec: Any) -> None:
        model.engine.compile_step(element_spec)

    def train(self, model: keras.Model, data: Any, updates: int, progress: Progress) -> None:
        elements, goes_on = iter(data), True
        with failed_checks_reported():
            while goes_on:
                count = progress.next_call()
                model.make_updates(elements, count)
                goes_on = progress.after_call(count, model.means)

    def predict(self, model: keras.Model, data: Any, callbacks: Sequence[keras.callbacks.Callback]) -> Tensors:
        with failed_checks_reported():
            return super().predict(model, data, callbacks)

    def evaluate(
        self, model: keras.Model, data: Any, callbacks: Sequence[keras.callbacks.Callback]
    ) -> Dict[str, float]:
        with failed_checks_reported():
            return super().evaluate(model, data, callbacks)

    def shards(self, optimizer: keras.optimizers.Optimizer) -> ShardedMoments:
        return optimizer.sharded_moments()

    def other_state(self) -> Dict[str, Any]:
        return self._other_state
