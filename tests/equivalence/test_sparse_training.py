"""Every way of computing gives the same sparse training; RigL and changes of the pattern are correct."""

from __future__ import annotations

import functools  # room: pipeline

import numpy as np
import pytest

from execution.interface import Update
from execution.software.precision import MIXED, Numerics
from keras_extensions.backend import keras, tf
from model.huggingface import build_hf_model
from model.losses import PretrainingObjective
from model.tasks import PRETRAINING
from optimization.optimizers import AdamW
from pipeline.platform import PipelinePlatform  # room: pipeline
from sparsity import native
from sparsity.layer import DenseGradients, sparse_layers
from sparsity.patterns import NEW, random_pattern, set_change
from sparsity.training import change_pattern
from tests.support.bert_pairs import ROUNDING, architecture, batch, dataset_of, on_cpu, pair_of
from tests.support.packs import in_packs, packed_model, sequences
from tests.support.updates import make_updates

pytestmark = pytest.mark.slow

STAGES = [["emb", "hid_0"], ["hid_1"], ["enc_out", "pool", "heads"]]
PIPELINED = {"kind": functools.partial(PipelinePlatform, ["/CPU:0", "/CPU:1", "/CPU:0"])}  # room: pipeline


def sparse_architecture(kernel):
    return architecture(sparsity_ratio=0.5, sparsity_block_size=4, sparsity_kernel=kernel)


def data():
    return dataset_of([batch(architecture(), 8)], micro_batches=4).repeat()


def trained(kernel="masked", optimizer=None, updates=2, **platform):
    a = sparse_architecture(kernel)
    on = on_cpu(**platform)
    pair = pair_of(build_hf_model(PRETRAINING, a, seed=11), a, on, stages=STAGES, transfer=False)
    layers = sparse_layers(pair.blocks)
    for number, layer in enumerate(layers):
        layer.choose_pattern(random_pattern(layer.size, layer.count, 5, number))
    pair.conversion.transfer_weights(pair.source)
    on.compile(pair.model, optimizer or keras.optimizers.SGD(0.5), PretrainingObjective(), Update(4), 1)
    if updates:
        make_updates(on, pair.model, data(), updates)
    return pair.model, layers


@pytest.fixture(scope="module")
def in_sequence():
    return [layer.dense() for layer in trained()[1]]


@pytest.mark.usefixtures("logical_devices")
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(PIPELINED, marks=pytest.mark.long),  # room: pipeline
        {**PIPELINED, "kernel": "gather", "xla": True},  # room: pipeline
        {"kernel": "native", "recompute": True},
    ],
)
def test_it_trains_as_stages_in_sequence(in_sequence, how):
    if how.get("kernel") == "native" and not native.is_available():
        pytest.skip("llvmlite is not installed")
    for one, layer in zip(in_sequence, trained(**how)[1]):
        np.testing.assert_allclose(one, layer.dense(), atol=2e-6)


@pytest.mark.parametrize("kernel", ["masked", pytest.param("native", marks=pytest.mark.long)])
def test_mixed_precision_is_float32_to_the_digits_of_bfloat16(in_sequence, kernel):
    if kernel == "native" and not native.is_available():
        pytest.skip("llvmlite is not installed")
    model, layers = trained(kernel, numerics=Numerics(MIXED))
    start = [layer.dense() for layer in trained(kernel, updates=0)[1]]
    assert {weight.dtype for weight in model.trainable_weights} == {tf.float32}
    for layer, wide, before in zip(layers, in_sequence, start, strict=True):
        assert layer.blocks.dtype == tf.float32
        result, absent = layer.dense(), before == 0
        assert not result[absent].any() and absent.mean() == pytest.approx(0.5, abs=0.01)
        step, error = np.linalg.norm(wide - before), np.linalg.norm(result - wide)
        assert 0 < error / step < 8 * ROUNDING["bfloat16"], layer.name


@pytest.fixture(scope="module")
def with_moments():
    """A model after two updates of AdamW with recomputation."""
    optimizer = AdamW(1e-3)
    return (*trained(recompute=True, optimizer=optimizer), optimizer)


def test_moments_go_with_their_blocks_and_new_ones_start_fresh(with_moments):
    model, layers, optimizer = with_moments
    layer = layers[0]
    variables = (layer.blocks, *optimizer.moments(layer.blocks))
    before, old = [variable.numpy() for variable in variables], layer.positions.numpy()
    assert all(value.any() for value in before)
    norms = np.linalg.norm(before[0].reshape(layer.count, -1), axis=1)
    change = set_change(old, norms, 0.3, layer.size, 1)
    change_pattern(layer, change, optimizer.moments(layer.blocks))
    assert change.grown
    for number, source in zip(change.pattern, change.sources):
        block = int(np.flatnonzero(layer.positions.numpy() == number)[0])
        for variable, value in zip(variables, before):
            expected = np.zeros((4, 4)) if source == NEW else value[np.flatnonzero(old == number)[0]]
            np.testing.assert_array_equal(variable.numpy()[block], expected)
    make_updates(on_cpu(), model, data(), 1)  # the compiled step continues with them


def assert_dense_gradients_hold_the_blocks_own(model, objective, layers, sample):
    """Check that norms of the whole gradient equal those of existing blocks, and are not zero elsewhere."""
    with tf.GradientTape() as tape:
        outputs = model({name: sample[name] for name in model.input_names}, training=True)
        sums, counts = objective.sums(outputs, sample), objective.counts(sample)
        value = tf.add_n([sums[name] / counts[name] for name in objective.losses])
    own = tape.gradient(value, [layer.blocks for layer in layers])
    probed = DenseGradients(model, objective, layers).block_norms(sample)
    for layer, gradient, norms in zip(layers, own, probed):
        expected = np.abs(gradient.numpy()).sum(axis=(1, 2))
        np.testing.assert_allclose(norms[layer.positions.numpy()], expected, rtol=2e-4, atol=1e-6)
        assert np.delete(norms, layer.positions.numpy()).min() > 0


def test_dense_gradients_are_those_of_the_whole_matrix(with_moments):
    model, layers, _ = with_moments
    sample = {name: tf.constant(values) for name, values in batch(architecture(), 2, seed=3).items()}
    assert_dense_gradients_hold_the_blocks_own(model, PretrainingObjective(), layers, sample)


def test_dense_gradients_of_packs():
    a = sparse_architecture("masked")
    model = packed_model(a).model
    packs = in_packs(sequences(a, [20, 25, 17, 30]), [[0, 1], [2, 3]])
    sample = {name: tf.constant(values) for name, values in packs.items()}
    assert_dense_gradients_hold_the_blocks_own(model, PretrainingObjective(), sparse_layers([model]), sample)
