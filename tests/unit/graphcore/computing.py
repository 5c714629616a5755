"""What the double computes, with plain TensorFlow, so that whole runs go through it.

Where Graphcore's Keras refuses a call, so does this: other steps than a multiple of the accumulation, executions of
different length, shapes that are not static, weights without a gradient, a queue that is filled in two places.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_extensions.backend import keras, tf
from tests.unit.graphcore.double import Call, Recorder, checked, installed
from tests.unit.graphcore.signatures import published_modules

EXTENSION = "keras.ipu.extensions.functional_extensions"
PIPELINE = "tensorflow.python.ipu.ops.pipelining_ops"
ACCUMULATING = {"offload_weight_update_variables", "replicated_optimizer_state_sharding", "dtype"}
SET_BY_KERAS = {
    "computational_stages", "repeat_count", "inputs", "infeed_queue", "outfeed_queue", "optimizer_function",
    "gradient_accumulation_count", "reduction_method", "outfeed_loss", "outfeed_mask", "batch_serialization_iterations",
}  # fmt: skip


class Machine:
    """What Graphcore's packages know of one another."""

    def __init__(self) -> None:
        self.strategy: Any = None
        self.stage: int | None = None
        self.stages: dict[str, int] = {}  # of each layer that the model's graph calls
        self.depth = 0


class Strategy:
    machine: Machine

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @contextlib.contextmanager
    def scope(self) -> Iterator[Any]:
        before, self.machine.strategy = self.machine.strategy, self
        try:
            yield self
        finally:
            self.machine.strategy = before


class PopDist(Strategy):
    def update_ipu_config(self, config: Any) -> None:
        config.experimental.multi_replica_distribution.process_count = 2


class Stage:
    machine: Machine

    def __init__(self, stage: int) -> None:
        self._stage = stage

    def __enter__(self) -> Stage:
        assert self.machine.strategy is not None, "PipelineStage may only be used in an IPUStrategy"
        assert self.machine.stage is None, "pipeline stages must not be nested"
        self.machine.stage = self._stage
        return self

    def __exit__(self, *error: object) -> None:
        self.machine.stage = None


class Queue:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._values: list[np.ndarray] = []
        self._graphs: list[Any] = []

    def enqueue(self, tensors: tf.Tensor) -> tf.Operation:
        assert not tf.executing_eagerly(), "only a program on the IPU fills a queue"
        assert tensors.graph not in self._graphs, "an outfeed can only be enqueued once"
        self._graphs.append(tensors.graph)
        return tf.py_function(lambda value: self._values.append(value.numpy()), [tensors], [])

    def dequeue(self, wait_for_completion: bool = False) -> tf.Tensor:
        assert self._graphs, "trying to dequeue an outfeed which has not been enqueued"
        values, self._values = self._values, []
        return tf.stack(values)


class IpuOptimizer(keras.optimizers.legacy.Optimizer):
    """Slots in a dtype of their own; ``direction`` gives what is multiplied by the learning rate."""

    def __init__(
        self, name: str, learning_rate: Any, beta_1: float, beta_2: float, epsilon: float, m_dtype: Any, v_dtype: Any,
        optimizer_compute_precisions: Any = (tf.float32,), outline_apply_gradients: bool = False,
        outline_apply_gradients_kwargs: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(name, **kwargs)
        self._set_hyper("learning_rate", learning_rate)
        self._constants = (beta_1, beta_2, epsilon)
        self._dtypes = {"m": m_dtype, "v": v_dtype}
        self._moments: dict[Any, tf.Variable] = {}

    def get_slot_dtype(self, var: tf.Variable, slot_name: str) -> Any:
        return self._dtypes[slot_name]

    def add_slot(
        self, var: Any, slot_name: str, initializer: Any = "zeros", shape: Any = None, dtype: Any = None
    ) -> Any:
        key = (var.ref(), slot_name)
        if key not in self._moments:
            dtype = dtype or self.get_slot_dtype(var, slot_name) or var.dtype
            self._moments[key] = tf.Variable(tf.zeros(var.shape, dtype), trainable=False)
        return self._moments[key]

    def get_slot(self, var: Any, slot_name: str) -> tf.Variable:
        return self._moments[(var.ref(), slot_name)]

    def _create_slots(self, var_list: Any) -> None:
        for name in self._dtypes:
            for variable in var_list:
                self.add_slot(variable, name)

    def _resource_apply_dense(self, grad: Any, handle: Any, apply_state: Any = None) -> Any:
        beta_1, beta_2, epsilon = self._constants
        time = tf.cast(self.iterations + 1, tf.float32)
        gradient, weights = tf.cast(grad, tf.float32), tf.cast(handle, tf.float32)
        m, v = self.get_slot(handle, "m"), self.get_slot(handle, "v")
        m.assign(m * beta_1 + gradient * (1 - beta_1))
        v.assign(v * beta_2 + gradient**2 * (1 - beta_2))
        adam = (m / (1 - beta_1**time)) / (tf.sqrt(v / (1 - beta_2**time)) + epsilon)
        name = handle.name.split(":")[0]
        rate = tf.cast(apply_state[(handle.device, handle.dtype.base_dtype)]["lr_t"], tf.float32)
        return handle.assign_sub(tf.cast(rate * self.direction(name, weights, adam), handle.dtype))

    def direction(self, name: str, weights: tf.Tensor, adam: tf.Tensor) -> tf.Tensor:
        return adam

    def get_config(self) -> dict[str, Any]:
        return super().get_config()


class Adam(IpuOptimizer):
    def __init__(
        self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-7,
        amsgrad: bool = False, name: str = "Adam", m_dtype: Any = None, v_dtype: Any = None, vhat_dtype: Any = None,
        debiasing: bool = True, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(name, learning_rate, beta_1, beta_2, epsilon, m_dtype, v_dtype, **kwargs)


class Lamb(IpuOptimizer):
    def __init__(
        self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-6,
        weight_decay_rate: float = 0.0, exclude_from_weight_decay: Any = None,
        exclude_from_layer_adaptation: Any = None, name: str = "LAMB", debiasing: bool = True,
        m_dtype: Any = None, v_dtype: Any = None, weight_norm_clip: Any = None,
        optimizer_compute_precisions: Any = (tf.float32, tf.float32), **kwargs: Any,
    ) -> None:  # fmt: skip
        assert len(optimizer_compute_precisions) == 2, "LAMB computes in two stages"
        super().__init__(name, learning_rate, beta_1, beta_2, epsilon, m_dtype, v_dtype, **kwargs)
        self._decay = weight_decay_rate
        self._undecayed, self._unadapted = exclude_from_weight_decay or [], exclude_from_layer_adaptation or []

    def direction(self, name: str, weights: tf.Tensor, adam: tf.Tensor) -> tf.Tensor:
        update = adam
        if not any(re.search(pattern, name) for pattern in self._undecayed):
            update += self._decay * weights
        if any(re.search(pattern, name) for pattern in self._unadapted):
            return update
        norms = tf.norm(weights), tf.norm(update)
        ratio = tf.where((norms[0] > 0) & (norms[1] > 0), norms[0] / tf.maximum(norms[1], 1e-30), 1.0)
        return ratio * update


def gelu(x: tf.Tensor, approximate: bool = True, name: str | None = None) -> tf.Tensor:
    return tf.nn.gelu(x, approximate=approximate)


def embedding_lookup(
    params: tf.Tensor, ids: tf.Tensor, serialization_factor: int = 1, indices_are_sorted: bool = False, name: Any = None
) -> tf.Tensor:
    assert params.shape[0] % serialization_factor == 0
    return tf.gather(params, ids)


def serialized_matmul(
    a: tf.Tensor, b: tf.Tensor, serialization_factor: int, serialization_dimension: str, transpose_a: bool = False,
    transpose_b: bool = False, name: Any = None,
) -> tf.Tensor:  # fmt: skip
    assert serialization_dimension == "kernel_rows" and transpose_b and b.shape[0] % serialization_factor == 0
    parts = tf.split(b, serialization_factor)
    return tf.concat([tf.matmul(a, part, transpose_a=transpose_a, transpose_b=True) for part in parts], axis=-1)


def computing(machine: Machine) -> dict[str, Any]:
    """What computes, by its published name."""
    ops, addons = "tensorflow.python.ipu.ops", "ipu_tensorflow_addons.keras"
    bound = {"machine": machine}
    return {
        "tensorflow.python.ipu.ipu_strategy.IPUStrategyV1": type("Strategy", (Strategy,), bound),
        "tensorflow.python.ipu.distributed.popdist_strategy.PopDistStrategy": type("PopDist", (PopDist,), bound),
        "tensorflow.python.ipu.ipu_outfeed_queue.IPUOutfeedQueue": Queue,
        "keras.ipu.extensions.pipeline_stage_assignment.PipelineStage": type("Stage", (Stage,), bound),
        f"{ops}.nn_ops.gelu": gelu,
        f"{ops}.embedding_ops.embedding_lookup": embedding_lookup,
        f"{ops}.math_ops.serialized_matmul": serialized_matmul,
        f"{ops}.functional_ops.outlined_function": lambda func, **_: func,
        f"{ops}.pipelining_ops.recomputation_checkpoint": lambda tensors, name=None: tensors,
        f"{addons}.layers.dropout.Dropout": keras.layers.Dropout,
        f"{addons}.layers.normalization.LayerNormalization": keras.layers.LayerNormalization,
        f"{addons}.optimizers.adam_optimizer.AdamIpuOptimizer": Adam,
        f"{addons}.optimizers.lamb_optimizer.LAMBIpuOptimizer": Lamb,
        "popdist.isPopdistEnvSet": lambda: False,
    }


class Training:
    """Keras' ``fit`` as Graphcore's extensions run it."""

    def __init__(self, model: Any, system: dict[str, Any], options: dict[str, Any], steps_per_execution: int):
        self.model = model
        self.accumulation = options["gradient_accumulation_steps_per_replica"]
        self.steps = steps_per_execution
        ipus = 2 ** math.ceil(math.log2(max(options.get("device_mapping", [0])) + 1))
        self.replicas = system["auto_select_ipus"] // ipus
        self.mean = options["gradient_accumulation_reduction_method"].name != "SUM"
        self.attached = system["device_connection.type"].name != "PRE_COMPILE"
        self.sums = [tf.Variable(tf.zeros(weight.shape), trainable=False) for weight in model.trainable_variables]

    def run(self, data: tf.data.Dataset, steps_per_epoch: int, callbacks: Any) -> None:
        steps = steps_per_epoch // self.replicas
        assert self.steps % self.accumulation == 0, "steps_per_execution is not divisible by the accumulation"
        assert steps % self.steps == 0, "steps_per_execution must divide the number of batches"
        assert all(spec.shape.is_fully_defined() for spec in tf.nest.flatten(data.element_spec))
        micro_batch, update = tf.function(self.micro_batch, autograph=False), tf.function(self.update, autograph=False)
        if not self.attached:
            micro_batch.get_concrete_function(*data.element_spec)
            return
        told = keras.callbacks.CallbackList(callbacks, add_history=True, model=self.model)
        elements = iter(data)
        told.on_train_begin()
        told.on_epoch_begin(0)
        for step in range(0, steps, self.steps):
            told.on_train_batch_begin(step)
            for number in range(self.steps):
                for _ in range(self.replicas):
                    micro_batch(*next(elements))
                if (number + 1) % self.accumulation == 0:
                    update()
            told.on_train_batch_end(step + self.steps - 1, {"loss": 0.0})
            if self.model.stop_training:
                break
        told.on_epoch_end(0, {})
        told.on_train_end({})

    def micro_batch(self, x: Any, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = self.model.compiled_loss(y, self.model(x, training=True))
        gradients = tape.gradient(loss, self.model.trainable_variables)
        for total, gradient, weight in zip(self.sums, gradients, self.model.trainable_variables, strict=True):
            assert gradient is not None, f"variable {weight.name} has None for gradient"
            share = tf.cast(tf.convert_to_tensor(gradient), tf.float32)
            total.assign_add(share / self.accumulation if self.mean else share)

    def update(self) -> None:
        pairs = [
            (tf.cast(total, w.dtype), w) for total, w in zip(self.sums, self.model.trainable_variables, strict=True)
        ]
        with tf.control_dependencies([self.model.optimizer.apply_gradients(pairs)]):
            for total in self.sums:
                total.assign(tf.zeros(total.shape))


@contextlib.contextmanager
def graphcore() -> Iterator[tuple[Recorder, Machine]]:
    """The double, with Keras' models extended as Graphcore's are."""
    machine = Machine()
    with installed(computing(machine)) as recorder, contextlib.ExitStack() as patches:
        functional = type(keras.Model(*[keras.Input((1,))] * 2))
        for name, attribute in extensions(recorder, machine, functional).items():
            before = functional.__dict__.get(name)
            setattr(functional, name, attribute)
            patches.callback(setattr, functional, name, before) if before else patches.callback(
                delattr, functional, name
            )
        plain = keras.layers.Layer.__call__
        keras.layers.Layer.__call__ = noting_stages(machine, plain)
        patches.callback(setattr, keras.layers.Layer, "__call__", plain)
        yield recorder, machine


def noting_stages(machine: Machine, plain: Any) -> Any:
    """A layer's call that notes its pipeline stage, where it is the model's graph that calls."""

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if machine.stage is not None and not machine.depth:
            machine.stages[layer.name] = machine.stage
        machine.depth += 1
        try:
            return plain(layer, *args, **kwargs)
        finally:
            machine.depth -= 1

    return call


def extensions(recorder: Recorder, machine: Machine, functional: type) -> dict[str, Any]:
    """The published methods of functional models, and Keras' own that they replace."""
    modules = published_modules()
    accepted = {
        "set_pipelining_options": set(modules[PIPELINE].functions["pipeline"].parameters) - SET_BY_KERAS,
        "set_gradient_accumulation_options": ACCUMULATING,
    }
    plain_compile, plain_predict = functional.compile, functional.predict

    def setter(name: str, signature: Any) -> Any:
        def set_options(model: Any, **options: Any) -> None:
            assert machine.strategy is not None, f"{name} exists only in the scope of an IPUStrategy"
            unknown = set(options) - set(signature.parameters) - accepted.get(name, set())
            assert not unknown, f"{name} takes no {', '.join(sorted(unknown))}"
            assert isinstance(options.get("device_mapping", []), list)
            model._ipu_options = options

        return checked(recorder, f"{EXTENSION}.FunctionalExtension.{name}", signature, set_options, first=1)

    def compile(model: Any, steps_per_execution: int = 1, **arguments: Any) -> None:
        recorder.calls.append(Call("compile", {"steps_per_execution": steps_per_execution, **arguments}))
        model._ipu_steps = steps_per_execution
        plain_compile(model, **arguments)

    def fit(model: Any, data: Any, *, steps_per_epoch: int, verbose: Any, callbacks: Any) -> None:
        recorder.calls.append(Call("fit", {"steps_per_epoch": steps_per_epoch}))
        system = recorder.called("IPUConfig.configure_ipu_system")[-1]["self"].to_dict()
        Training(model, system, model._ipu_options, model._ipu_steps).run(data, steps_per_epoch, callbacks)

    def predict(model: Any, data: Any, *, steps: int, **arguments: Any) -> Any:
        recorder.calls.append(Call("predict", {"steps": steps}))
        assert steps % model._ipu_steps == 0
        return plain_predict(model, data, steps=steps, **arguments)

    published = modules[EXTENSION].classes["FunctionalExtension"].methods
    methods = {name: setter(name, signature) for name, signature in published.items() if name.startswith("set_")}
    return {**methods, "compile": compile, "fit": fit, "predict": predict}
