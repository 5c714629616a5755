"""Updates of the software platform: split over micro batches, replicas, recomputed, compiled, they stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from execution.interface import Update
from execution.software.platform import SoftwarePlatform
from keras_extensions.backend import keras, tf
from model.architecture import PRETRAINING
from model.bert import assemble
from model.conversion import convert
from model.huggingface import untrained
from model.losses import PretrainingObjective
from tests.equivalence.bert_pairs import architecture, batch, converted, pretraining_shapes, source_outputs
from tests.equivalence.test_conversion import loss_of

SAMPLES = 8
WAYS = [{"recompute": True}, {"xla": True, "recompute": True}, pytest.param({"xla": True}, marks=pytest.mark.long)]


def trained(update=None, micro_batches=1, steps=2, dropout=0.0, optimizer=None, executions=1, **platform):
    """Weights by name, and metrics, after updates on the same data, however it is split."""
    a = architecture(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    on = SoftwarePlatform(seed=1, **{"xla": False, "recompute": False, **platform})
    source = untrained(PRETRAINING, a, seed=11)
    blocks, conversion = convert(PRETRAINING, source, a, on)
    shapes = pretraining_shapes(24, 6)
    model = assemble(blocks, shapes, ("masked_lm", "next_sentence"), [[b.name for b in blocks]], on)
    conversion.carry_weights(source)
    optimizer = optimizer or keras.optimizers.SGD(0.5)
    on.compile(model, optimizer, PretrainingObjective(), update or Update(micro_batches), executions)
    parts = [batch(a, SAMPLES, seed=step) for step in range(steps)]
    shaped = [
        {name: value.reshape(micro_batches, -1, *value.shape[1:]) for name, value in part.items()} for part in parts
    ]
    data = tf.data.Dataset.from_tensor_slices({name: np.stack([s[name] for s in shaped]) for name in shaped[0]})
    history = model.fit(data, steps_per_epoch=steps, verbose=0).history
    weights = {f"{block.name}/{i}": w.numpy() for block in blocks for i, w in enumerate(block.weights)}
    return weights, {name: values[-1] for name, values in history.items()}


def assert_same(one, other, rtol=1e-6, atol=1e-7):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=rtol, atol=atol, err_msg=name)


@pytest.fixture(scope="module")
def whole():
    return trained()


@pytest.mark.parametrize("reduction", ["mean", "running_mean"])
@pytest.mark.parametrize("micro_batches", [2, 4, 8])
def test_accumulation_is_one_large_batch(whole, reduction, micro_batches):
    weights, metrics = trained(Update(micro_batches, reduction=reduction), micro_batches)
    assert_same(weights, whole[0])
    assert_same(metrics, whole[1], rtol=1e-5)


def test_sum_is_the_mean_times_the_accumulation_steps_of_a_replica(whole):
    # Two replicas of two micro batches each: replicas are averaged, micro batches summed.
    update = Update(4, virtual_replicas=2, reduction="sum")
    weights, _ = trained(update, 4, optimizer=keras.optimizers.SGD(0.25))
    assert_same(weights, whole[0])


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_how_it_executes_changes_nothing(whole, options):
    assert_same(trained(micro_batches=2, **options)[0], whole[0], rtol=1e-4, atol=1e-6)


def test_loss_scale_leaves_the_update_alone(whole):
    assert_same(trained(Update(1, loss_scale=4096.0))[0], whole[0])


def test_several_updates_in_one_execution(whole):
    weights, _ = trained(executions=2)
    assert_same(weights, whole[0])


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_dropout_is_the_same_compiled_and_recomputed(options):
    plain, _ = trained(micro_batches=2, dropout=0.3)
    assert_same(trained(micro_batches=2, dropout=0.3, **options)[0], plain, rtol=1e-4, atol=1e-6)


def test_dropout_has_an_effect(whole):
    weights, _ = trained(dropout=0.3)
    assert any(not np.allclose(weights[name], whole[0][name]) for name in weights)


@pytest.mark.parametrize("layers", [2, 4])
def test_after_a_training_step_it_is_still_hugging_face(layers):
    a = architecture(num_hidden_layers=layers)
    pair, data = converted(a, xla=True), batch(a)
    with tf.GradientTape() as tape:
        loss = loss_of(source_outputs(pair.source, data), data)
    gradients = tape.gradient(loss, pair.source.trainable_variables)
    for variable, gradient in zip(pair.source.trainable_variables, gradients):
        variable.assign_sub(0.1 * tf.convert_to_tensor(gradient))

    on = SoftwarePlatform(seed=1, xla=True, recompute=False)
    on.compile(pair.model, keras.optimizers.SGD(0.1), PretrainingObjective(), Update(1), 1)
    element = {name: value[None, None] for name, value in data.items()}
    history = pair.model.fit(tf.data.Dataset.from_tensor_slices(element), steps_per_epoch=1, verbose=0).history
    np.testing.assert_allclose(history["mlm_loss"][0] + history["nsp_loss"][0], loss, rtol=1e-5)
    ours = pair.model({name: data[name] for name in pair.model.input_names})
    theirs = source_outputs(pair.source, data)
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5, rtol=1e-5)
