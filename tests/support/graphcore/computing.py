"""Implements the computing parts of the double with plain TensorFlow, which makes whole runs possible.

It refuses what Graphcore's code refuses, with the same type of exception; ``tests/emulation/refusals.py`` has the
list, by which Graphcore's own code is checked, too. It runs on TensorFlow 2.6, on which Graphcore's is based, and on
today's.

B micro batch · T terms of the objective
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import re
import weakref
from typing import Any, Callable, Dict, Iterator, List, MutableMapping, NamedTuple, Optional, Tuple

import numpy as np

from keras_extensions.backend import keras, tf
from tests.support.graphcore.double import Call, Recorder, checked, installed
from tests.support.graphcore.signatures import published_modules

EXTENSION = "keras.ipu.extensions.functional_extensions"
PIPELINE = "tensorflow.python.ipu.ops.pipelining_ops"
ACCUMULATING = {"offload_weight_update_variables", "replicated_optimizer_state_sharding", "dtype"}
SET_BY_KERAS = {
    "computational_stages", "repeat_count", "inputs", "infeed_queue", "outfeed_queue", "optimizer_function",
    "gradient_accumulation_count", "reduction_method", "outfeed_loss", "outfeed_mask", "batch_serialization_iterations",
}  # fmt: skip
KerasOptimizer: Any = getattr(keras.optimizers, "legacy", keras.optimizers).Optimizer


def refuse(condition: bool, kind: Callable[[str], Exception], message: str) -> None:
    if condition:
        raise kind(message)


class Strategy(tf.distribute.OneDeviceStrategy):
    """IPUStrategyV1, whose scope Keras and TensorFlow check like that of any strategy."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("/cpu:0")


class PopDist(Strategy):
    def update_ipu_config(self, config: Any) -> None:
        config.experimental.multi_replica_distribution.process_count = 2


class Stage:
    """PipelineStage, with its refusals."""

    def __init__(self, stage: int) -> None:
        pass

    def __enter__(self) -> None:
        strategy = tf.distribute.get_strategy()
        wanted = isinstance(strategy, Strategy) and not isinstance(strategy, PopDist)
        refuse(not wanted, RuntimeError, "PipelineStage may only be used from within an IPUStrategy context")

    def __exit__(self, *error: object) -> None:
        pass


class Assignment:
    def __init__(self, layer: Any, node_index: int, pipeline_stage: Optional[int] = None) -> None:
        self.layer, self.node_index, self.pipeline_stage = layer, node_index, pipeline_stage


class Queue:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._values: List[np.ndarray] = []
        self._graphs: List[Any] = []

    def enqueue(self, tensors: tf.Tensor) -> tf.Operation:
        assert not tf.executing_eagerly(), "only a program on the IPU fills a queue"
        refuse(tensors.graph in self._graphs, ValueError, "An outfeed can only be enqueued once")
        self._graphs.append(tensors.graph)
        return tf.py_function(lambda value: self._values.append(value.numpy()), [tensors], [])

    def dequeue(self, wait_for_completion: bool = False) -> tf.Tensor:
        values, self._values = self._values, []
        return tf.stack(values)


class LayerNormalization(keras.layers.LayerNormalization):
    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        unknown = None in inputs.shape.as_list()
        refuse(unknown, ValueError, f"Input shape {inputs.shape} has unknown dimensions")
        return super().call(inputs)


class Lamb(KerasOptimizer):
    """LAMB whose slots have their own dtypes."""

    adaptive = True

    def __init__(
        self, learning_rate: Any, name: str = "Lamb", beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-6,
        weight_decay_rate: float = 0.0, exclude_from_weight_decay: Any = (), exclude_from_layer_adaptation: Any = (),
        m_dtype: Any = None, v_dtype: Any = None, optimizer_compute_precisions: Any = None,
        outline_apply_gradients: bool = False, outline_apply_gradients_kwargs: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(name)
        self._set_hyper("learning_rate", learning_rate)
        self._constants = (beta_1, beta_2, epsilon, weight_decay_rate)
        self._undecayed, self._unadapted = exclude_from_weight_decay, exclude_from_layer_adaptation
        self._dtypes = {"m": m_dtype, "v": v_dtype}
        self._moments: Dict[Any, tf.Variable] = {}

    def get_slot_dtype(self, var: tf.Variable, slot_name: str) -> Any:
        return self._dtypes[slot_name]

    def add_slot(self, var: Any, slot_name: str) -> tf.Variable:
        key = (var.ref(), slot_name)
        if key not in self._moments:
            strategy = tf.distribute.get_strategy()
            inside = strategy.extended.variable_created_in_scope(var)
            refuse(not inside, ValueError, f"{strategy} is different from the scope used for the variable {var.name}")
            dtype = self.get_slot_dtype(var, slot_name) or var.dtype
            self._moments[key] = tf.Variable(tf.zeros(var.shape, dtype), trainable=False)
        return self._moments[key]

    def get_slot(self, var: Any, slot_name: str) -> tf.Variable:
        return self._moments[(var.ref(), slot_name)]

    def _create_slots(self, var_list: Any) -> None:
        for name in self._dtypes:
            for variable in var_list:
                self.add_slot(variable, name)

    def _resource_apply_dense(self, grad: Any, handle: Any, apply_state: Any = None) -> Any:
        beta_1, beta_2, epsilon, decay = self._constants
        time = tf.cast(self.iterations + 1, tf.float32)
        gradient, weights = tf.cast(grad, tf.float32), tf.cast(handle, tf.float32)
        m, v = self.get_slot(handle, "m"), self.get_slot(handle, "v")
        m.assign(m * beta_1 + gradient * (1 - beta_1))
        v.assign(v * beta_2 + gradient**2 * (1 - beta_2))
        update = (m / (1 - beta_1**time)) / (tf.sqrt(v / (1 - beta_2**time)) + epsilon)
        name = handle.name.split(":")[0]
        if not any(re.search(pattern, name) for pattern in self._undecayed):
            update += decay * weights
        if self.adaptive and not any(re.search(pattern, name) for pattern in self._unadapted):
            norms = tf.norm(weights), tf.norm(update)
            update *= tf.where((norms[0] > 0) & (norms[1] > 0), norms[0] / tf.maximum(norms[1], 1e-30), 1.0)
        rate = tf.cast(apply_state[(handle.device, handle.dtype.base_dtype)]["lr_t"], tf.float32)
        return handle.assign_sub(tf.cast(rate * update, handle.dtype))


class Adam(Lamb):
    adaptive = False


def gelu(x: tf.Tensor, approximate: bool = True, name: Optional[str] = None) -> tf.Tensor:
    return tf.nn.gelu(x, approximate=approximate)


def embedding_lookup(
    params: tf.Tensor, ids: tf.Tensor, serialization_factor: int = 1, indices_are_sorted: bool = False, name: Any = None
) -> tf.Tensor:
    functools.reduce(operator.mul, ids.shape.as_list(), 1)  # a TypeError if a dimension is unknown
    refuse(ids.dtype != tf.int32, TypeError, f"ids are {ids.dtype.name} that does not match expected type of int32")
    uneven = params.shape[0] % serialization_factor
    refuse(uneven, ValueError, f"The serialization_factor must divide the rows of the table, {params.shape[0]}")
    return tf.gather(params, ids)


def serialized_matmul(
    a: tf.Tensor, b: tf.Tensor, serialization_factor: int, serialization_dimension: str, transpose_a: bool = False,
    transpose_b: bool = False, name: Any = None,
) -> tf.Tensor:  # fmt: skip
    m, k = a.shape.as_list()[-2:][:: -1 if transpose_a else 1]
    n = b.shape.as_list()[-2 if transpose_b else -1]
    sizes = {"a_columns": m, "a_rows_b_columns": k, "b_rows": n}
    refuse(serialization_dimension not in sizes, ValueError, f"Invalid serialization_dimension, none of {list(sizes)}")
    uneven = sizes[serialization_dimension] % serialization_factor
    refuse(uneven, ValueError, f"Expected 'serialization_factor' to divide {serialization_dimension}")
    return tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)


def computing() -> Dict[str, Any]:
    """Return the computing parts by their published names."""
    ops, addons, assignment = "tensorflow.python.ipu.ops", "ipu_tensorflow_addons.keras", "pipeline_stage_assignment"
    return {
        "tensorflow.python.ipu.ipu_strategy.IPUStrategyV1": Strategy,
        "tensorflow.python.ipu.distributed.popdist_strategy.PopDistStrategy": PopDist,
        "tensorflow.python.ipu.ipu_outfeed_queue.IPUOutfeedQueue": Queue,
        f"keras.ipu.extensions.{assignment}.PipelineStage": Stage,
        f"keras.ipu.extensions.{assignment}.FunctionalLayerPipelineStageAssignment": Assignment,
        f"{ops}.nn_ops.gelu": gelu,
        f"{ops}.embedding_ops.embedding_lookup": embedding_lookup,
        f"{ops}.math_ops.serialized_matmul": serialized_matmul,
        f"{ops}.functional_ops.outlined_function": lambda func, **_: func,
        f"{ops}.pipelining_ops.recomputation_checkpoint": lambda tensors, name=None: tensors,
        f"{addons}.layers.dropout.Dropout": keras.layers.Dropout,
        f"{addons}.layers.normalization.LayerNormalization": LayerNormalization,
        f"{addons}.optimizers.adam_optimizer.AdamIpuOptimizer": Adam,
        f"{addons}.optimizers.lamb_optimizer.LAMBIpuOptimizer": Lamb,
        "popdist.isPopdistEnvSet": lambda: False,
    }


class Program(NamedTuple):
    """The settings of a model by ``set_…_options`` and ``compile``."""

    options: Dict[str, Any]
    steps: int


class Training:
    """Keras' ``fit`` as Graphcore's extensions run it."""

    def __init__(self, model: Any, system: Dict[str, Any], program: Program):
        options, self.steps = program
        mapping = options.get("device_mapping", [0])
        self.model = model
        self.accumulation = options["gradient_accumulation_steps_per_replica"]
        self.replicas = system["auto_select_ipus"] // 2 ** math.ceil(math.log2(max(mapping) + 1))
        self.mean = options["gradient_accumulation_reduction_method"].name != "SUM"
        self.attached = system["device_connection.type"].name != "PRE_COMPILE"
        self.check(options, mapping)
        self.sums = [tf.Variable(tf.zeros(weight.shape), trainable=False) for weight in model.trainable_variables]

    def check(self, options: Dict[str, Any], mapping: List[int]) -> None:
        refuse(not self.replicas, ValueError, f"the model requires a multiple of {max(mapping) + 1} IPUs")
        on_chip = options.get("offload_weight_update_variables") is False
        refuse(
            on_chip and bool(options.get("replicated_optimizer_state_sharding")), ValueError,
            "To use replicated_optimizer_state_sharding, optimizer state must be offloaded",
        )  # fmt: skip
        schedule = getattr(options.get("pipeline_schedule"), "name", None)
        refuse(
            schedule == "Interleaved" and len(set(mapping)) < len(mapping), NotImplementedError,
            "The schedule 'Interleaved' does not support multiple pipeline stages on the same device",
        )  # fmt: skip
        uneven = self.steps % self.accumulation
        refuse(uneven, RuntimeError, "steps_per_execution is not divisible by the gradient accumulation")

    def run(self, data: tf.data.Dataset, steps_per_epoch: int, callbacks: Any) -> None:
        steps = steps_per_epoch // self.replicas
        refuse(steps % self.steps, ValueError, "`steps_per_execution` must be a divisor of the number of batches")
        static = all(spec.shape.is_fully_defined() for spec in tf.nest.flatten(data.element_spec))
        refuse(not static, ValueError, "The data has a shape which is not fully defined")
        micro_batch, update = self.program(self.micro_batch), self.program(self.update)
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

    def program(self, function: Callable[..., None]) -> Any:
        strategy = self.model.distribute_strategy
        return tf.function(lambda *batch: strategy.run(function, args=batch), autograph=False)

    def micro_batch(self, x: Any, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = self.model.compiled_loss(y, self.model(x, training=True))
        weights = self.model.trainable_variables
        for total, gradient, weight in zip(self.sums, tape.gradient(loss, weights), weights):
            assert gradient is not None, f"variable {weight.name} has None for gradient"
            share = tf.cast(tf.convert_to_tensor(gradient), tf.float32)
            total.assign_add(share / self.accumulation if self.mean else share)

    def update(self) -> None:
        pairs = [(tf.cast(total, w.dtype), w) for total, w in zip(self.sums, self.model.trainable_variables)]
        with tf.control_dependencies([self.model.optimizer.apply_gradients(pairs)]):
            for total in self.sums:
                total.assign(tf.zeros(total.shape))


@contextlib.contextmanager
def graphcore() -> Iterator[Recorder]:
    """Install the double, with extended functional models of Keras like Graphcore's."""
    with installed(computing()) as recorder, contextlib.ExitStack() as patches:
        functional = type(keras.Model(*[keras.Input((1,))] * 2))
        for name, attribute in extensions(recorder, functional).items():
            before = functional.__dict__.get(name)
            setattr(functional, name, attribute)
            undo = (setattr, functional, name, before) if before else (delattr, functional, name)
            patches.callback(*undo)
        yield recorder


def called_layers(model: Any) -> List[Tuple[Any, Any]]:
    """Return each call of a layer in a model with its node, in order of execution and without inputs."""
    depths = sorted(model._nodes_by_depth, reverse=True)
    nodes = [node for depth in depths for node in model._nodes_by_depth[depth]]
    return [(node.layer, node) for node in nodes if not node.is_input]


def extensions(recorder: Recorder, functional: Any) -> Dict[str, Any]:
    """Return the published methods of functional models, and Keras' methods that they replace."""
    modules = published_modules()
    accepted = {
        "set_pipelining_options": set(modules[PIPELINE].functions["pipeline"].parameters) - SET_BY_KERAS,
        "set_gradient_accumulation_options": ACCUMULATING,
    }
    programs: MutableMapping[Any, Program] = weakref.WeakKeyDictionary()
    plain_compile, plain_predict = functional.compile, functional.predict

    def setter(name: str, signature: Any) -> Any:
        def set_options(model: Any, **options: Any) -> None:
            in_scope = isinstance(model._distribution_strategy, Strategy)
            refuse(not in_scope, AttributeError, f"{name} exists on models that were made in an IPUStrategy's scope")
            unknown = set(options) - set(signature.parameters) - accepted.get(name, set())
            refuse(bool(unknown), TypeError, f"{name} takes no {', '.join(sorted(unknown))}")
            listed = isinstance(options.get("device_mapping", []), list)
            refuse(not listed, ValueError, "Expected `device_mapping` to be a list of integers")
            programs[model] = Program(options, 1)

        return checked(recorder, f"{EXTENSION}.FunctionalExtension.{name}", signature, set_options, first=1)

    def get_pipeline_stage_assignment(model: Any) -> List[Any]:
        return [Assignment(layer, layer.inbound_nodes.index(node)) for layer, node in called_layers(model)]

    def set_pipeline_stage_assignment(model: Any, pipeline_stage_assignment: List[Any]) -> None:
        calls = called_layers(model)
        right = [assignment.layer for assignment in pipeline_stage_assignment] == [layer for layer, _ in calls]
        refuse(not right, ValueError, "The assignment does not match the number of layers in the graph, or their order")
        stages = {id(node): one.pipeline_stage for (_, node), one in zip(calls, pipeline_stage_assignment)}
        refuse(None in stages.values(), ValueError, "A layer has not been assigned a pipeline stage")
        for _, node in calls:
            earlier = [stages.get(id(parent), 0) for parent in node.parent_nodes]
            late = max(earlier, default=0) > stages[id(node)]
            refuse(late, ValueError, f"{node.layer.name} has a dependency from a stage which has not yet been executed")
        stage_of = {assignment.layer.name: assignment.pipeline_stage for assignment in pipeline_stage_assignment}
        recorder.calls.append(Call("set_pipeline_stage_assignment", stage_of))

    def compile(model: Any, steps_per_execution: int = 1, **arguments: Any) -> None:
        recorder.calls.append(Call("compile", {"steps_per_execution": steps_per_execution, **arguments}))
        options = programs[model].options if model in programs else {}
        programs[model] = Program(options, steps_per_execution)
        plain_compile(model, **arguments)

    def fit(model: Any, data: Any, *, steps_per_epoch: int, verbose: Any, callbacks: Any) -> None:
        recorder.calls.append(Call("fit", {"steps_per_epoch": steps_per_epoch}))
        system = recorder.called("IPUConfig.configure_ipu_system")[-1]["self"].to_dict()
        Training(model, system, programs[model]).run(data, steps_per_epoch, callbacks)

    def predict(model: Any, data: Any, *, steps: int, **arguments: Any) -> Any:
        recorder.calls.append(Call("predict", {"steps": steps}))
        uneven = steps % programs[model].steps
        refuse(uneven, ValueError, "`steps_per_execution` must be a divisor of the number of batches")
        return plain_predict(model, data, steps=steps, **arguments)

    published = modules[EXTENSION].classes["FunctionalExtension"].methods
    methods = {name: setter(name, published[name]) for name in accepted}
    own = (get_pipeline_stage_assignment, set_pipeline_stage_assignment, compile, fit, predict)
    return {**methods, **{function.__name__: function for function in own}}
