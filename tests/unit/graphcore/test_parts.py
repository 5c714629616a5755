"""The parts of the IPU platform that do not need Graphcore's packages, and the defaults for IPUs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from execution.interface import ExecutionOptions, cross_entropy
from execution.processes import Processes
from execution.software.dropout import Dropout, DropoutSeeds
from graphcore.layout import prediction_steps
from graphcore.streams import low_precision_cross_entropy
from keras_extensions.backend import tf
from model.losses import PretrainingObjective
from settings.schema import TrainingConfig
from tests import ROOT
from tests.support.config_files import load_config
from tests.support.graphcore.double import installed
from training.initial_weights import resolved_architecture
from training.prediction import evaluation_batch_size

HOSTS = "tensorflow.python.ipu.distributed.host_collective_ops"
TINY = str(ROOT / "configs" / "pretraining" / "pretrain_tiny_128_phase1.json")


def with_gradient(function, scores, labels):
    with tf.GradientTape() as tape:
        tape.watch(scores)
        losses = function(scores, labels)
        total = tf.reduce_sum(losses * tf.range(1.0, 1.0 + losses.shape[-1]))
    return losses.numpy(), tape.gradient(total, scores).numpy()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 5e-3)])
def test_low_precision_cross_entropy_equals_that_in_float32(dtype: str, tolerance: float) -> None:
    rng = np.random.default_rng(0)
    scores = tf.constant(rng.normal(0, 3, (2, 5, 1000)), dtype)
    labels = tf.constant(rng.integers(0, 1000, (2, 5)), tf.int32)
    losses, gradient = with_gradient(low_precision_cross_entropy, scores, labels)
    expected, expected_gradient = with_gradient(cross_entropy, scores, labels)
    assert losses.dtype == np.float32
    np.testing.assert_allclose(losses, expected, rtol=tolerance)
    np.testing.assert_allclose(gradient, expected_gradient, atol=tolerance)


def test_low_precision_cross_entropy_makes_no_float32_copy_of_the_scores() -> None:
    function = tf.function(gradient_of_sum, autograph=False)
    graph = function.get_concrete_function(tf.TensorSpec([2, 5, 1000], tf.float16), tf.TensorSpec([2, 5], tf.int32))
    float32 = [op.name for op in graph.graph.get_operations() for out in op.outputs if out.dtype == tf.float32]
    large = [op for op in graph.graph.get_operations() for out in op.outputs if out.shape[-1:] == [1000]]
    assert float32 and large
    assert not [op.name for op in large if op.outputs[0].dtype == tf.float32]


def gradient_of_sum(scores, labels):
    objective = PretrainingObjective(accuracies=False, word_cross_entropy=low_precision_cross_entropy)
    batch = {
        "masked_lm_ids": labels,
        "masked_lm_weights": tf.ones(labels.shape),
        "next_sentence_labels": tf.zeros((2, 1), tf.int32),
    }
    sums = objective.sums({"masked_lm": scores, "next_sentence": tf.zeros((2, 2), tf.float16)}, batch)
    return tf.gradients(sums["mlm_loss"], scores)


def test_dropout_of_rate_0_adds_no_operation() -> None:
    seeds = DropoutSeeds()

    def operations(rate: float) -> list[str]:
        layer = Dropout(rate, seeds)

        @tf.function(autograph=False)
        def function(x, seed):
            with seeds.using(seed):
                return layer(x, training=True)

        graph = function.get_concrete_function(tf.TensorSpec([2, 3]), tf.TensorSpec([2], tf.int32)).graph
        return [op.type for op in graph.get_operations() if op.type not in ("Placeholder", "Identity")]

    assert operations(0.1)
    assert operations(0.0) == []


@pytest.mark.parametrize(("stages", "batches", "steps"), [((0, 1, 0), 100, 6), ((0,), 100, 16), ((), 5, 5)])
def test_batches_predicted_per_execution(stages: tuple[int, ...], batches: int, steps: int) -> None:
    assert prediction_steps(ExecutionOptions(device_mapping=stages), batches) == steps


def test_instances_exchange_values() -> None:
    """This is instance 1 of 2; instance 0 contributes 7."""
    with installed({f"{HOSTS}.allreduce": lambda x, op: x + 7, f"{HOSTS}.allgather": lambda x: tf.stack([[7], x])}):
        from graphcore.platform import HostCollectives

    instance = Processes(2, 1, HostCollectives())
    assert (instance.count, instance.index, instance.is_chief, instance.is_single) == (2, 1, False, False)
    assert [instance.maximum(3), instance.maximum(9)] == [7, 9]
    assert instance.broadcast([np.array([0, 0], np.int32)])[0].tolist() == [7, 7]
    instance.join()  # does nothing, because PopRun has connected the instances
    assert instance.lost(tf.errors.AbortedError(None, None, "Collective ops are aborted")) is None


def loaded(*flags: str) -> TrainingConfig:
    return load_config("pretraining", ["--config", TINY, "--generated-dataset", "true", *flags]).config


def test_evaluation_uses_the_batch_size_of_the_model(caplog: pytest.LogCaptureFixture) -> None:
    ipus, anything = SimpleNamespace(batch_size=2), SimpleNamespace(batch_size=None)
    assert evaluation_batch_size(None, 2, ipus) == 2 and not caplog.records
    assert evaluation_batch_size(16, 2, ipus) == 2
    assert "evaluation_batch_size 16 has no effect" in caplog.text
    assert evaluation_batch_size(16, 2, anything) == 16
    assert evaluation_batch_size(None, 2, anything) == 32


def test_new_models_use_the_activation_of_the_machine() -> None:
    assert resolved_architecture(loaded(), None, "gelu_new").hidden_act == "gelu_new"
    exact = loaded("--bert-config.hidden-act", "gelu")
    assert resolved_architecture(exact, None, "gelu_new").hidden_act == "gelu"
    pretrained = SimpleNamespace(origin="there", architecture={"hidden_act": "gelu"})
    assert resolved_architecture(loaded(), pretrained, "gelu_new").hidden_act == "gelu"
