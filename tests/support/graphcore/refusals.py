"""Calls that Graphcore's code refuses, and that the double must refuse too.

``python -m tests.support.graphcore.refusals`` lists the calls that Graphcore's packages (or their emulation) do
not refuse; ``test_refusals.py`` makes the calls on the double.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, List, NamedTuple, Type

from keras_extensions.backend import keras, tf

IPU = "tensorflow.python.ipu"


class Refusal(NamedTuple):
    call: Callable[[], Any]
    kind: Type[Exception]
    words: str  # a part of the message


REFUSALS: Dict[str, Refusal] = {}


def refused(kind: Type[Exception], words: str) -> Callable:
    def register(call: Callable[[], Any]) -> Callable[[], Any]:
        REFUSALS[call.__name__] = Refusal(call, kind, words)
        return call

    return register


def ipu(module: str) -> Any:
    return importlib.import_module(f"{IPU}.{module}")


def traced(function: Callable, *shape: Any, dtype: str = "int32") -> None:
    """Trace a function of one tensor."""
    tf.function(function, autograph=False).get_concrete_function(tf.TensorSpec(shape, dtype))


# Operations


@refused(ValueError, "unknown dimensions")
def layer_normalization_of_unknown_batches() -> None:
    addons = importlib.import_module("ipu_tensorflow_addons.keras.layers.normalization")
    addons.LayerNormalization()(keras.Input((4, 8)))


@refused(TypeError, "NoneType")
def embedding_lookup_of_unknown_batches() -> None:
    traced(lambda ids: ipu("ops.embedding_ops").embedding_lookup(tf.zeros((4, 2)), ids), None, 3)


@refused(TypeError, "int64 that does not match expected type of int32")
def embedding_lookup_of_long_integers() -> None:
    traced(lambda ids: ipu("ops.embedding_ops").embedding_lookup(tf.zeros((4, 2)), ids), 3, dtype="int64")


@refused(ValueError, "must divide")
def embedding_lookup_in_uneven_parts() -> None:
    ipu("ops.embedding_ops").embedding_lookup(tf.zeros((5, 2)), tf.zeros((3,), "int32"), serialization_factor=2)


def serialized(rows: Any, dimension: str, factor: int = 2) -> None:
    def product(x: tf.Tensor) -> tf.Tensor:
        return ipu("ops.math_ops").serialized_matmul(x, tf.zeros((6, 4)), factor, dimension, transpose_b=True)

    traced(product, rows, 4, dtype="float32")


@refused(ValueError, "Invalid serialization_dimension")
def serialization_along_kernel_rows() -> None:
    serialized(3, "kernel_rows")


@refused(ValueError, "to divide")
def serialization_in_uneven_parts() -> None:
    serialized(4, "b_rows", factor=4)


# Models and their stages


def enter_stage(strategy: Any) -> None:
    stages = importlib.import_module("keras.ipu.extensions.pipeline_stage_assignment")
    with strategy.scope(), stages.PipelineStage(0):
        pass


@refused(RuntimeError, "from within an IPUStrategy context")
def pipeline_stage_in_another_strategy() -> None:
    enter_stage(tf.distribute.OneDeviceStrategy("/cpu:0"))


@refused(RuntimeError, "from within an IPUStrategy context")
def pipeline_stage_under_popdist() -> None:
    enter_stage(ipu("distributed.popdist_strategy").PopDistStrategy())


def staged(*stages: Any) -> Any:
    """Return a model of two layers in these stages, made in the current scope."""
    x = keras.Input(batch_input_shape=(2, 4))
    model = keras.Model(x, keras.layers.Dense(1, name="second")(keras.layers.Dense(4, name="first")(x)))
    assignments = model.get_pipeline_stage_assignment()[: len(stages)]
    for assignment, stage in zip(assignments, stages):
        assignment.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignments)
    return model


def in_scope(call: Callable[[Any], Any]) -> None:
    """Make a call with the strategy of a system of two IPUs, in its scope."""
    system = ipu("config").IPUConfig()
    system.auto_select_ipus = 2
    system.configure_ipu_system()
    strategy = ipu("ipu_strategy").IPUStrategyV1()
    with strategy.scope():
        call(strategy)


@refused(ValueError, "does not match the number of layers")
def stages_of_some_layers() -> None:
    in_scope(lambda strategy: staged(0))


@refused(ValueError, "has not been assigned a pipeline stage")
def layer_without_a_stage() -> None:
    in_scope(lambda strategy: staged(0, None))


@refused(ValueError, "has a dependency from a")
def stage_before_what_it_needs() -> None:
    in_scope(lambda strategy: staged(1, 0))


@refused(AttributeError, "set_pipelining_options")
def model_from_outside_the_scope() -> None:
    x = keras.Input(batch_input_shape=(2, 4))
    model = keras.Model(x, keras.layers.Dense(1)(x))
    in_scope(lambda strategy: model.set_pipelining_options(device_mapping=[0, 1]))


@refused(ValueError, "to be a list of integers")
def device_mapping_that_is_a_tuple() -> None:
    in_scope(lambda strategy: staged(0, 1).set_pipelining_options(device_mapping=(0, 1)))


@refused(ValueError, "is different from the scope used for the")
def slots_of_variables_from_outside_the_scope() -> None:
    optimizers = importlib.import_module("ipu_tensorflow_addons.keras.optimizers.adam_optimizer")
    variable = tf.Variable(tf.zeros((2,)))
    in_scope(lambda strategy: optimizers.AdamIpuOptimizer(0.1).add_slot(variable, "m"))


# Training


def train(batch: Any = 2, steps: int = 4, steps_per_execution: int = 4, **options: Any) -> None:
    """Train a model of two stages; the parameters change correct settings."""

    def run(strategy: Any) -> None:
        model = staged(0, 1)
        pipelining, chosen = ipu("ops.pipelining_ops"), {"device_mapping": [0, 1], **options}
        chosen["pipeline_schedule"] = pipelining.PipelineSchedule[chosen.get("pipeline_schedule", "Grouped")]
        means = ipu("gradient_accumulation").GradientAccumulationReductionMethod.MEAN
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=4, gradient_accumulation_reduction_method=means, **chosen
        )
        optimizers = importlib.import_module("ipu_tensorflow_addons.keras.optimizers.adam_optimizer")
        model.compile(optimizer=optimizers.AdamIpuOptimizer(0.1), loss="mse", steps_per_execution=steps_per_execution)
        rows = tf.data.Dataset.from_tensors((tf.zeros((4,)), tf.zeros((1,)))).repeat()
        data = rows.batch(batch or 2, drop_remainder=batch is not None)
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[])

    in_scope(run)


@refused(ValueError, "must be offloaded")
def sharding_of_what_is_on_the_chip() -> None:
    train(offload_weight_update_variables=False, replicated_optimizer_state_sharding=True)


@refused(NotImplementedError, "multiple pipeline stages on the same device")
def interleaved_schedule_with_a_repeated_device() -> None:
    train(steps=8, device_mapping=[0, 0], pipeline_schedule="Interleaved")


@refused(ValueError, "requires a multiple of")
def more_ipus_than_are_attached() -> None:
    train(device_mapping=[0, 2])


@refused(ValueError, "which is not fully defined")
def data_of_unknown_batches() -> None:
    train(batch=None)


@refused(RuntimeError, "is not divisible by")
def executions_of_broken_updates() -> None:
    train(steps=6, steps_per_execution=6)


@refused(ValueError, "must be a divisor of the number of batches")
def a_shorter_last_execution() -> None:
    train(steps=12, steps_per_execution=8)


def not_refused() -> List[str]:
    """Return a description of each refusal that differs from the expected one."""
    wrong = []
    for name, refusal in REFUSALS.items():
        try:
            refusal.call()
            wrong.append(f"{name}: nothing is refused")
        except Exception as error:
            if type(error) is not refusal.kind or refusal.words not in " ".join(str(error).split()):
                wrong.append(f"{name}: {type(error).__name__}: {str(error)[:300]}")
    return wrong


if __name__ == "__main__":
    problems = not_refused()
    print("\n".join([*problems, f"{len(REFUSALS) - len(problems)} of {len(REFUSALS)} refused as they should be"]))
    raise SystemExit(bool(problems))
