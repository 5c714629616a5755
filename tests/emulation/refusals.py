"""Calls that Graphcore's code refuses, and that the double must refuse too.

``python -m tests.emulation.refusals`` lists the calls that Graphcore's packages (or their emulation) do
not refuse; ``test_double.py`` makes the calls on both.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, List, NamedTuple, Type

from keras_extensions.backend import keras, tf

IPU = "tensorflow.python.ipu"


def ipu(module: str) -> Any:
    return importlib.import_module(f"{IPU}.{module}")


def addons(module: str) -> Any:
    return importlib.import_module(f"ipu_tensorflow_addons.keras.{module}")


# Operations


def traced(function: Callable, *shape: Any, dtype: str = "int32") -> None:
    """Trace a function of one tensor."""
    tf.function(lambda x: function(x), autograph=False).get_concrete_function(tf.TensorSpec(shape, dtype))


def look_up(ids: tf.Tensor, rows: int = 4, **options: Any) -> Any:
    return ipu("ops.embedding_ops").embedding_lookup(tf.zeros((rows, 2)), ids, **options)


def multiply(rows: int, dimension: str, factor: int = 2) -> None:
    def product(x: tf.Tensor) -> tf.Tensor:
        return ipu("ops.math_ops").serialized_matmul(x, tf.zeros((6, 4)), factor, dimension, transpose_b=True)

    traced(product, rows, 4, dtype="float32")


# Models and their stages


def enter_stage(strategy: Any) -> None:
    stages = importlib.import_module("keras.ipu.extensions.pipeline_stage_assignment")
    with strategy.scope(), stages.PipelineStage(0):
        pass


def staged(*stages: Any) -> Any:
    """Return a model of two layers in these stages, made in the current scope."""
    x = keras.Input(batch_input_shape=(2, 4))
    model = keras.Model(x, keras.layers.Dense(1, name="second")(keras.layers.Dense(4, name="first")(x)))
    assignments = model.get_pipeline_stage_assignment()[: len(stages)]
    for assignment, stage in zip(assignments, stages):
        assignment.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignments)
    return model


def in_scope(call: Callable[[], Any]) -> None:
    """Make a call in the scope of the strategy of a system of two IPUs."""
    system = ipu("config").IPUConfig()
    system.auto_select_ipus = 2
    system.configure_ipu_system()
    strategy = ipu("ipu_strategy").IPUStrategyV1()
    with strategy.scope():
        call()


def pipeline_model_from_outside() -> None:
    x = keras.Input(batch_input_shape=(2, 4))
    model = keras.Model(x, keras.layers.Dense(1)(x))
    in_scope(lambda: model.set_pipelining_options(device_mapping=[0, 1]))


def add_slot_from_outside() -> None:
    optimizers, variable = addons("optimizers.adam_optimizer"), tf.Variable(tf.zeros((2,)))
    in_scope(lambda: optimizers.AdamIpuOptimizer(0.1).add_slot(variable, "m"))


# Training


def train(batch: Any = 2, steps: int = 4, steps_per_execution: int = 4, **options: Any) -> None:
    """Train a model of two stages; the parameters change correct settings."""

    def run() -> None:
        model = staged(0, 1)
        pipelining, chosen = ipu("ops.pipelining_ops"), {"device_mapping": [0, 1], **options}
        chosen["pipeline_schedule"] = pipelining.PipelineSchedule[chosen.get("pipeline_schedule", "Grouped")]
        means = ipu("gradient_accumulation").GradientAccumulationReductionMethod.MEAN
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=4, gradient_accumulation_reduction_method=means, **chosen
        )
        optimizer = addons("optimizers.adam_optimizer").AdamIpuOptimizer(0.1)
        model.compile(optimizer=optimizer, loss="mse", steps_per_execution=steps_per_execution)
        rows = tf.data.Dataset.from_tensors((tf.zeros((4,)), tf.zeros((1,)))).repeat()
        data = rows.batch(batch or 2, drop_remainder=batch is not None)
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[])

    in_scope(run)


class Refusal(NamedTuple):
    kind: Type[Exception]
    words: str  # a part of the message
    call: Callable[[], Any]


REFUSALS: Dict[str, Refusal] = {
    "layer normalization of unknown batches": Refusal(
        ValueError,
        "unknown dimensions",
        lambda: addons("layers.normalization").LayerNormalization()(keras.Input((4, 8))),
    ),
    "embedding lookup of unknown batches": Refusal(TypeError, "NoneType", lambda: traced(look_up, None, 3)),
    "embedding lookup of long integers": Refusal(
        TypeError, "int64 that does not match expected type of int32", lambda: traced(look_up, 3, dtype="int64")
    ),
    "embedding lookup in uneven parts": Refusal(
        ValueError, "must divide", lambda: look_up(tf.zeros((3,), "int32"), rows=5, serialization_factor=2)
    ),
    "serialization along kernel rows": Refusal(
        ValueError, "Invalid serialization_dimension", lambda: multiply(3, "kernel_rows")
    ),
    "serialization in uneven parts": Refusal(ValueError, "to divide", lambda: multiply(4, "b_rows", factor=4)),
    "pipeline stage in another strategy": Refusal(
        RuntimeError,
        "from within an IPUStrategy context",
        lambda: enter_stage(tf.distribute.OneDeviceStrategy("/cpu:0")),
    ),
    "pipeline stage under popdist": Refusal(
        RuntimeError,
        "from within an IPUStrategy context",
        lambda: enter_stage(ipu("distributed.popdist_strategy").PopDistStrategy()),
    ),
    "stages of some layers": Refusal(
        ValueError, "does not match the number of layers", lambda: in_scope(lambda: staged(0))
    ),
    "layer without a stage": Refusal(
        ValueError, "has not been assigned a pipeline stage", lambda: in_scope(lambda: staged(0, None))
    ),
    "stage before what it needs": Refusal(
        ValueError, "has a dependency from a", lambda: in_scope(lambda: staged(1, 0))
    ),
    "model from outside the scope": Refusal(AttributeError, "set_pipelining_options", pipeline_model_from_outside),
    "device mapping that is a tuple": Refusal(
        ValueError,
        "to be a list of integers",
        lambda: in_scope(lambda: staged(0, 1).set_pipelining_options(device_mapping=(0, 1))),
    ),
    "slots of variables from outside the scope": Refusal(
        ValueError, "is different from the scope used for the", add_slot_from_outside
    ),
    "sharding of what is on the chip": Refusal(
        ValueError,
        "must be offloaded",
        lambda: train(offload_weight_update_variables=False, replicated_optimizer_state_sharding=True),
    ),
    "interleaved schedule with a repeated device": Refusal(
        NotImplementedError,
        "multiple pipeline stages on the same device",
        lambda: train(steps=8, device_mapping=[0, 0], pipeline_schedule="Interleaved"),
    ),
    "more IPUs than are attached": Refusal(ValueError, "requires a multiple of", lambda: train(device_mapping=[0, 2])),
    "data of unknown batches": Refusal(ValueError, "which is not fully defined", lambda: train(batch=None)),
    "executions of broken updates": Refusal(
        RuntimeError, "is not divisible by", lambda: train(steps=6, steps_per_execution=6)
    ),
    "a shorter last execution": Refusal(
        ValueError, "must be a divisor of the number of batches", lambda: train(steps=12, steps_per_execution=8)
    ),
}


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
