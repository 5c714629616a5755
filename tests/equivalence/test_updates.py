"""Updates of the software platform do not depend on micro batches, replicas, recomputation or compilation."""

from __future__ import annotations

import numpy as np
import pytest

from execution.interface import OptimizerSettings, Update
from keras_extensions.backend import keras, tf
from keras_extensions.schedules import WarmUp
from model.architecture import hidden_matrix_parameters
from model.blocks import hidden_matrices
from model.huggingface import build_hf_model
from model.losses import PretrainingObjective
from model.tasks import CLASSIFICATION, PRETRAINING, SQUAD, expected_blocks
from tests.support.bert_pairs import (
    architecture,
    assert_same_logits,
    batch,
    converted,
    dataset_of,
    loss_of,
    on_cpu,
    pair_of,
    source_outputs,
    weights_by_name,
)
from tests.support.updates import make_updates

pytestmark = pytest.mark.slow

SAMPLES = 8
SPLITS = [(8, "mean"), (4, "running_mean")]
FURTHER_SPLITS = [
    pytest.param(*split, marks=pytest.mark.long)
    for split in [(2, "mean"), (4, "mean"), (2, "running_mean"), (8, "running_mean")]
]
RECOMPUTED, COMPILED = {"recompute": True}, {"xla": True}


def trained(update=None, micro_batches=1, steps=2, dropout=0.0, rate=0.5, muon=False, **platform):
    """Return the weights by name, and the metrics, after updates on the same data, split in any way."""
    a = architecture(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    pair = pair_of(build_hf_model(PRETRAINING, a, seed=11), a, on_cpu(**platform))
    update = update or Update(micro_batches)
    optimizer = keras.optimizers.SGD(rate)
    if muon:  # so large an epsilon makes the other weights' updates proportional to the gradient
        settings = OptimizerSettings("Muon", WarmUp(0.02, 8, 0.0), epsilon=0.1, matrices=hidden_matrices(pair.blocks))
        optimizer = pair.platform.optimizer(settings)
    pair.platform.compile(pair.model, optimizer, PretrainingObjective(), update, 1)
    data = dataset_of([batch(a, SAMPLES, seed=step) for step in range(steps)], update.micro_batches)
    (means,) = make_updates(pair.platform, pair.model, data, steps)
    return weights_by_name(pair.blocks), means


def assert_same(one, other, rtol=1e-6, atol=1e-7):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=rtol, atol=atol, err_msg=name)


@pytest.fixture(scope="module")
def whole():
    return trained()


@pytest.mark.parametrize("micro_batches, reduction", [*SPLITS, *FURTHER_SPLITS])
def test_accumulation_is_one_large_batch(whole, reduction, micro_batches):
    weights, metrics = trained(Update(micro_batches, reduction=reduction))
    assert_same(weights, whole[0])
    assert_same(metrics, whole[1], rtol=1e-5)


def test_sum_is_the_mean_times_the_accumulation_steps_of_a_replica(whole):
    # Two replicas of two micro batches each; replicas are averaged, and micro batches are summed.
    weights, _ = trained(Update(4, virtual_replicas=2, reduction="sum"), rate=0.25)
    assert_same(weights, whole[0])


@pytest.mark.parametrize("micro_batches, reduction, options", [(4, "running_mean", {}), (2, "mean", COMPILED)])
def test_micro_batches_computed_at_the_same_time_make_the_same_update(micro_batches, reduction, options):
    """The gradients are added in the same order, so weights and metrics are equal to the bit, also with dropout."""
    update = Update(micro_batches, reduction=reduction)
    in_turn = trained(update, steps=4, dropout=0.3, **options)
    at_once = trained(update, steps=4, dropout=0.3, parallel_micro_batches=micro_batches, **options)
    for one, other in zip(in_turn, at_once):
        assert_same(one, other, rtol=0, atol=0)


def test_loss_scale_and_several_updates_in_one_execution_do_not_change_the_update(whole):
    assert_same(trained(Update(1, loss_scale=4096.0))[0], whole[0])


def test_muon_on_micro_batches_compiled_and_recomputed():
    whole, _ = trained(muon=True)
    split, _ = trained(Update(4, reduction="running_mean"), muon=True, recompute=True, xla=True)
    assert_same(split, whole, rtol=1e-4, atol=1e-5)


H, WIDE = 32, 64
SQUARES = [(H, H, 1)] * 4  # query, key, value, projection
POOLER = {PRETRAINING: [(H, H, 1)], CLASSIFICATION: [(H, H, 1)]}
MERGED = {"use_qkv_split": False, "use_qkv_bias": False, "use_cls_layer": False}
SPARSE = {"sparsity_ratio": 0.5, "sparsity_block_size": 8, "sparse_parts": ["qkv", "output"]}  # room: sparsity


@pytest.mark.parametrize("task", [PRETRAINING, SQUAD, CLASSIFICATION])  # with a transform, without a pooler, with one
@pytest.mark.parametrize(
    "options, layer, transforms",
    [
        pytest.param({}, [*SQUARES, (H, WIDE, 1), (WIDE, H, 1)], 1, id="split"),
        pytest.param(MERGED, [(H, 3 * H, 3), (H, H, 1), (H, WIDE, 1), (WIDE, H, 1)], 0, id="merged"),
        pytest.param(SPARSE, [(H, H, 1), (H, WIDE, 1)], 1, id="sparse"),  # room: sparsity
        pytest.param(None, [*SQUARES, (H, WIDE, 1), (WIDE, H, 1)], 1, id="Hugging Face's layers"),
    ],
)
def test_hidden_matrices_are_those_of_encoder_pooler_and_transform(task, options, layer, transforms):
    a = architecture(intermediate_size=WIDE, **(options or {}))
    pair = pair_of(build_hf_model(task, a, seed=11), a, on_cpu(), task, replace=options is not None, transfer=False)
    result = hidden_matrices(pair.blocks)
    expected = layer * 2 + POOLER.get(task, []) + [(H, H, 1)] * (transforms if task == PRETRAINING else 0)
    assert sorted((*one.variable.shape, one.parts) for one in result) == sorted(expected)
    trained = {variable.ref() for variable in pair.model.trainable_variables}
    assert len({one.variable.ref() for one in result} & trained) == len(result)
    planned = sum(hidden_matrix_parameters(a, block) for block in expected_blocks(task, 2))
    assert planned == sum(rows * columns for rows, columns, _ in expected)


@pytest.fixture(scope="module")
def with_dropout():
    return trained(micro_batches=2, dropout=0.3)[0]


@pytest.mark.parametrize(
    "options", [{**RECOMPUTED, **COMPILED}, *(pytest.param(o, marks=pytest.mark.long) for o in (RECOMPUTED, COMPILED))]
)
def test_dropout_is_the_same_compiled_and_recomputed(with_dropout, options):
    assert_same(trained(micro_batches=2, dropout=0.3, **options)[0], with_dropout, rtol=1e-4, atol=1e-6)


def test_dropout_has_an_effect(whole, with_dropout):
    assert any(not np.allclose(with_dropout[name], whole[0][name]) for name in with_dropout)


@pytest.mark.parametrize("layers", [2, pytest.param(4, marks=pytest.mark.long)])
def test_a_training_step_is_that_of_hugging_faces_model(layers):
    a = architecture(num_hidden_layers=layers)
    pair, data = converted(a, xla=True), batch(a)
    with tf.GradientTape() as tape:
        loss = loss_of(source_outputs(pair.source, data), data)
    gradients = tape.gradient(loss, pair.source.trainable_variables)
    for variable, gradient in zip(pair.source.trainable_variables, gradients):
        variable.assign_sub(0.1 * tf.convert_to_tensor(gradient))

    pair.platform.compile(pair.model, keras.optimizers.SGD(0.1), PretrainingObjective(), Update(1), 1)
    (means,) = make_updates(pair.platform, pair.model, dataset_of([data], 1), 1)
    np.testing.assert_allclose(means["mlm_loss"] + means["nsp_loss"], loss, rtol=1e-5)
    assert_same_logits(pair(data), source_outputs(pair.source, data))
