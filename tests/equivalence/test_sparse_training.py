"""Sparse training over a pipeline is sparse training in sequence, and moments go where their blocks go."""

from __future__ import annotations

import numpy as np
import pytest

from execution.interface import Update
from execution.software.platform import PipelineLayout, SoftwarePlatform
from keras_extensions.backend import keras, tf
from keras_extensions.sparse.layer import sparse_layers_of
from keras_extensions.sparse.probe import DenseGradients
from model.bert import assemble, pretraining_shapes
from model.conversion import convert_pretraining
from model.huggingface import untrained_bert
from model.losses import PretrainingObjective
from optimization.adamw import AdamW
from optimization.sparsity.changes import NEW, set_change
from optimization.sparsity.pattern import Grid, random_pattern
from tests.equivalence.bert_pairs import architecture, batch
from utilities.training.sparsity import move

LENGTH, STAGES = 24, [["emb", "hid_0"], ["hid_1"], ["enc_out", "pool", "heads"]]
DEVICES = ["/CPU:0", "/CPU:1", "/CPU:0"]


def built(kernel="masked", devices=(), xla=False):
    a = architecture(
        num_hidden_layers=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        sparsity_ratio=0.5,
        sparsity_block_size=4,
        sparsity_kernel=kernel,
    )
    platform = SoftwarePlatform(seed=1, xla=xla, recompute=False, layout=PipelineLayout(devices))
    source = untrained_bert(a, seed=11)
    blocks, conversion = convert_pretraining(source, a, platform)
    model = assemble(blocks, pretraining_shapes(LENGTH, 6), ("masked_lm", "next_sentence"), STAGES, platform)
    layers = sparse_layers_of(blocks)
    for number, layer in enumerate(layers):
        layer.choose_pattern(random_pattern(Grid(*layer.grid), layer.count, 5, number))
    conversion.carry_weights(source)
    return a, platform, model, layers


def data(a, micro_batches=4):
    parts = [batch(a, 2, LENGTH, seed=number) for number in range(micro_batches)]
    element = {name: tf.stack([part[name] for part in parts]) for name in parts[0]}
    return tf.data.Dataset.from_tensors(element).repeat()


@pytest.mark.parametrize("xla", [False, True])
def test_a_pipeline_trains_as_stages_in_sequence(xla):
    if len(tf.config.list_logical_devices("CPU")) < 2:
        pytest.skip("needs two logical CPU devices, which can only be made before TensorFlow starts")
    trained = []
    for devices in ((), DEVICES):
        a, platform, model, layers = built(devices=devices, xla=xla)
        platform.compile(model, keras.optimizers.SGD(0.5), PretrainingObjective(), Update(4), updates_per_execution=1)
        model.fit(data(a), steps_per_epoch=2, verbose=0)
        trained.append([layer.dense() for layer in layers])
    for one, other in zip(*trained):
        np.testing.assert_allclose(one, other, atol=2e-6)


def test_moments_go_with_their_blocks_and_new_ones_start_fresh():
    a, platform, model, layers = built()
    optimizer = AdamW(1e-3)
    platform.compile(model, optimizer, PretrainingObjective(), Update(4), updates_per_execution=1)
    model.fit(data(a), steps_per_epoch=2, verbose=0)
    layer = layers[0]
    variables = (layer.blocks, *optimizer.moments(layer.blocks))
    before, old = [variable.numpy() for variable in variables], layer.positions.numpy()
    assert all(value.any() for value in before)
    norms = np.linalg.norm(before[0].reshape(layer.count, -1), axis=1)
    change = set_change(old, norms, 0.3, Grid(*layer.grid), 1)
    move(layer, change, optimizer.moments(layer.blocks))
    assert change.grown
    for number, source in zip(change.pattern, change.sources):
        place = int(np.flatnonzero(layer.positions.numpy() == number)[0])
        for variable, value in zip(variables, before):
            expected = np.zeros((4, 4)) if source == NEW else value[np.flatnonzero(old == number)[0]]
            np.testing.assert_array_equal(variable.numpy()[place], expected)
    model.fit(data(a), steps_per_epoch=1, verbose=0)  # the compiled step goes on with them


def test_dense_gradients_are_those_of_the_whole_matrix():
    """Those of the blocks that exist are the trained blocks' own."""
    a, _, model, layers = built()
    objective, sample = PretrainingObjective(), batch(a, 2, LENGTH, seed=3)

    def loss():
        outputs = model({name: sample[name] for name in model.input_names}, training=True)
        sums, counts = objective.sums(outputs, sample), objective.counts(sample)
        return tf.add_n([sums[name] / counts[name] for name in objective.losses])

    with tf.GradientTape() as tape:
        value = loss()
    own = tape.gradient(value, [layer.blocks for layer in layers])
    probed = DenseGradients(model, objective, layers).block_norms(sample)
    for layer, gradient, norms in zip(layers, own, probed):
        expected = np.linalg.norm(gradient.numpy().reshape(layer.count, -1), axis=1)
        np.testing.assert_allclose(norms.numpy()[layer.positions.numpy()], expected, rtol=2e-4, atol=1e-7)
