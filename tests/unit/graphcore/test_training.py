"""On the double in float32, the adapter trains like stock TensorFlow if all micro batches have equal weight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints.state import HostCopy
from execution.interface import ExecutionOptions, OptimizerSettings, Platform, Update
from execution.select import select_platform
from graphcore.layout import largest_divisor
from keras_extensions.backend import keras, tf
from keras_extensions.schedules import WarmUp
from tests.support.graphcore.computing import graphcore
from tests.support.updates import Calls

UPDATES, REPLICAS, ACCUMULATION, BATCH, WIDTH = 4, 2, 3, 5, 4
SYSTEM: Any = {"platform": "graphcore", "replicas": REPLICAS, "micro_batch_size": BATCH, "device_mapping": (0, 1)}


class Errors:
    """An objective of mean squared error, with the mean of the targets as a metric."""

    losses = ("loss",)

    def counts(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return dict.fromkeys(("loss", "target"), tf.cast(tf.size(batch["y"]), tf.float32))

    def sums(self, outputs: dict[str, tf.Tensor], batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        difference = tf.cast(outputs["out"], tf.float32) - batch["y"]
        return {"loss": tf.reduce_sum(difference**2), "target": tf.reduce_sum(batch["y"])}


SOFTWARE = ExecutionOptions(platform="software", precision="float32", xla=False)


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = (UPDATES, REPLICAS * ACCUMULATION, BATCH)
    return {
        "x": rng.normal(size=(*shape, WIDTH)).astype(np.float32),
        "y": rng.normal(size=(*shape, 1)).astype(np.float32),
    }


def trained(
    platform: Platform, name: str, reduction: str, published: bool = False
) -> tuple[list[np.ndarray], Calls, Any]:
    """Return the weights after all updates, the calls with their means, and the optimizer's state."""
    # With so large an epsilon, a factor on the gradients matters, which Adam would normalise away.
    schedule = WarmUp(0.02, UPDATES, 0.5)
    settings = OptimizerSettings(name, schedule, weight_decay_rate=0.1, published_decay=published, epsilon=0.1)
    with platform.scope():
        x = platform.model_input((WIDTH,), "float32", "x")
        with platform.stage(0):
            hidden = keras.layers.Dense(3, kernel_initializer=keras.initializers.Constant(0.3), name="first")(x)
        with platform.stage(1):
            out = keras.layers.Dense(1, kernel_initializer=keras.initializers.Constant(-0.2), name="last")(hidden)
        model = platform.model({"x": x}, {"out": out}, [["first"], ["last"]])
    optimizer = platform.optimizer(settings)
    update = Update(REPLICAS * ACCUMULATION, REPLICAS, reduction, loss_scale=64.0)
    platform.compile(model, optimizer, Errors(), update, updates_per_call=2)
    calls = Calls(UPDATES, per_call=2)
    platform.train(model, tf.data.Dataset.from_tensor_slices(arrays()), UPDATES, calls)
    return [weight.numpy() for weight in model.trainable_variables], calls, platform.state(optimizer)


@pytest.mark.parametrize(
    ("name", "reduction", "published"),
    [("AdamW", "sum", False), ("AdamW", "sum", True), ("LAMB", "running_mean", True), ("LAMB", "mean", False)],
)
def test_weights_and_logs_of_stock_tensorflow_and_state_in_checkpoints(
    name: str, reduction: str, published: bool, tmp_path: Path
) -> None:
    with graphcore():
        options = ExecutionOptions(precision="float32", recompute=True, **SYSTEM)
        weights, ours, state = trained(select_platform(options), name, reduction, published)
    expected, theirs, _ = trained(select_platform(SOFTWARE), name, reduction, published)
    for one, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-6)
    assert ours.steps == theirs.steps == [2, 4]
    targets = arrays()["y"].reshape(2, -1).mean(axis=1)
    assert [means["target"] for means in ours.means] == pytest.approx(list(targets), rel=1e-4)
    assert [means["learning_rate"] for means in ours.means] == pytest.approx([0.02, 0.01])
    assert [means["loss"] for means in ours.means] == pytest.approx([means["loss"] for means in theirs.means], rel=1e-4)
    HostCopy({"optimizer": state}).write(tmp_path / "optimizer")
    moments = [*state.m.values(), *state.v.values()]
    before = [moment.numpy() for moment in moments]
    assert len(before) == 8 and all(value.any() and value.dtype == np.float32 for value in before)
    for variable in (*moments, state.iterations):
        variable.assign(tf.zeros_like(variable))
    reader = tf.train.Checkpoint(optimizer=state).read(str(tmp_path / "optimizer"))
    reader.expect_partial().assert_existing_objects_matched()
    assert state.iterations.numpy() == UPDATES
    for moment, value in zip(moments, before, strict=True):
        np.testing.assert_array_equal(moment.numpy(), value)


def test_calls_divide_the_updates_evenly() -> None:
    assert [largest_divisor(12, most) for most in (1, 4, 5, 7, 20)] == [1, 4, 4, 6, 12]
    assert largest_divisor(7, 5) == 1
