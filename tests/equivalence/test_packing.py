"""A sequence in a pack has the logits, gradients and losses of that sequence alone, whatever its neighbours are.

Hugging Face's own model, which does not support packs, runs each sequence alone, cut to its length.
"""

from __future__ import annotations

import numpy as np
import pytest

from execution.interface import Update
from execution.software.precision import FLOAT32, MIXED, Numerics
from keras_extensions.backend import tf
from model.losses import PretrainingObjective
from optimization.optimizers import AdamW
from tests.support.bert_pairs import (
    ROUNDING,
    architecture,
    assert_same_gradients,
    assert_same_logits,
    converted,
    dataset_of,
    loss_of,
    source_outputs,
)
from tests.support.packs import LENGTH, in_packs, of_sequence, packed_model, packs_in_order, run, sequences
from tests.support.updates import make_updates

LENGTHS = (5, 23, 20, 48, 11, 7, 9, 21, 30, 6)
PACKS = ((1, 0, 2), (3,), (4, 5, 6, 7), (8, 9))  # full, one sequence, as many as fit, and one with padding
IN_BOTH_PRECISIONS = pytest.mark.parametrize(
    "precision, rtol", [(FLOAT32, 1e-5), (MIXED, ROUNDING["bfloat16"])], ids=[FLOAT32, MIXED]
)
OTHER_PACKS = ((8, 4, 5), (9, 1, 6, 0), (3,), (7, 2))


@pytest.fixture(scope="module")
def a():
    return architecture()


@pytest.fixture(scope="module")
def pair(a):
    return packed_model(a)


@pytest.fixture(scope="module")
def data(a):
    return sequences(a, LENGTHS)


def alone(source, data, row):
    """Return Hugging Face's outputs for one sequence without padding, as tensors of a batch of one."""
    length = int(data["input_mask"][row].sum())
    one = {name: values[row : row + 1] for name, values in data.items()}
    one.update({name: one[name][:, :length] for name in ("input_ids", "input_mask", "segment_ids")})
    real = one["masked_lm_weights"][0] > 0
    one.update({name: one[name][:, real] for name in one if name.startswith("masked_lm")})
    return source_outputs(source, one), one


@pytest.fixture(scope="module")
def alone_by_row(pair, data):
    rows = range(len(LENGTHS))
    return [{name: values[0] for name, values in alone(pair.source, data, row)[0].items()} for row in rows]


@pytest.mark.parametrize(
    "packs",
    [PACKS, OTHER_PACKS, [pack[::-1] for pack in PACKS], [[row] for row in range(len(LENGTHS))]],
    ids=["packs", "others", "turned", "single"],
)
def test_logits_of_every_sequence_are_those_of_the_sequence_alone(pair, data, alone_by_row, packs):
    packed = in_packs(data, packs)
    outputs = run(pair.model, packed)
    for pack, rows in enumerate(packs):
        for slot, row in enumerate(rows):
            assert_same_logits(of_sequence(outputs, packed, pack, slot), alone_by_row[row], f"of {row}")


def test_hugging_face_s_own_layers_take_packs_too(a, data, alone_by_row):
    theirs = packed_model(a, replace=False)
    test_logits_of_every_sequence_are_those_of_the_sequence_alone(theirs, data, alone_by_row, PACKS)


@pytest.fixture(scope="module")
def gradients_alone(pair, data):
    """The gradients of the mean losses over all sequences by Hugging Face's model, one sequence at a time."""
    tokens, count = float(data["masked_lm_weights"].sum()), len(LENGTHS)
    with tf.GradientTape() as tape:
        total = 0.0
        for row in range(count):
            outputs, one = alone(pair.source, data, row)
            words = tf.nn.log_softmax(outputs["masked_lm"])
            total -= tf.reduce_sum(tf.gather(words, one["masked_lm_ids"], batch_dims=2)) / tokens
            following = tf.nn.log_softmax(outputs["next_sentence"])
            total -= tf.reduce_sum(tf.gather(following, one["next_sentence_labels"], batch_dims=1)) / count
    return tape.gradient(total, pair.source.trainable_variables)


def gradients_of_packs(model, packed):
    objective = PretrainingObjective()
    batch = {name: tf.constant(values) for name, values in packed.items()}
    counts = objective.counts(batch)
    with tf.GradientTape() as tape:
        sums = objective.sums(model({name: batch[name] for name in model.input_names}), batch)
        loss = tf.add_n([sums[name] / counts[name] for name in objective.losses])
    return tape.gradient(loss, model.trainable_variables)


@pytest.mark.parametrize("packs", [PACKS, OTHER_PACKS], ids=["packs", "other slots"])
def test_gradients_of_a_packed_batch_are_those_of_its_sequences(pair, data, gradients_alone, packs):
    ours = gradients_of_packs(pair.model, in_packs(data, packs))
    assert_same_gradients(pair, ours, gradients_alone)


@pytest.mark.parametrize("xla", [False, True], ids=["graph", "xla"])
def test_shuffling_one_sequence_leaves_the_others_unmoved_to_the_bit(pair, data, xla):
    model = tf.function(pair.model, jit_compile=xla, autograph=False)
    packed = in_packs(data, PACKS)
    before = run(model, packed)
    for pack, rows in enumerate(PACKS):
        for shuffled in range(len(rows)):
            own = np.flatnonzero(packed["input_mask"][pack] == shuffled + 1)
            changed = {name: values.copy() for name, values in packed.items()}
            turned = np.roll(own, 1)
            for name in ("input_ids", "segment_ids"):
                changed[name][pack, own] = packed[name][pack, turned]
            after = run(model, changed)
            for slot in range(len(rows)):
                old, new = (of_sequence(outputs, packed, pack, slot) for outputs in (before, after))
                for name in old:
                    same = np.array_equal(old[name], new[name])
                    assert same is (slot != shuffled), f"{name} of sequence {slot}, {shuffled} shuffled"


def test_what_stands_in_the_padding_does_not_matter_to_the_bit(pair, data):
    packed = in_packs(data, PACKS)
    before = run(pair.model, packed)
    padding = packed["input_mask"] == 0
    assert padding.any()
    filled = {**packed, "input_ids": np.where(padding, 7, packed["input_ids"])}
    after = run(pair.model, filled)
    for pack, rows in enumerate(PACKS):
        for slot in range(len(rows)):
            old, new = (of_sequence(outputs, packed, pack, slot) for outputs in (before, after))
            assert all(np.array_equal(old[name], new[name]) for name in old)


@IN_BOTH_PRECISIONS
def test_losses_are_means_over_real_tokens_and_sequences(a, data, precision, rtol):
    """The reference is Hugging Face's float32 model on padded sequences."""
    pair = packed_model(a, numerics=Numerics(precision))
    packed = {name: tf.constant(values) for name, values in in_packs(data, PACKS).items()}
    objective = PretrainingObjective()
    counts = objective.counts(packed)
    sums = objective.sums(pair(packed), packed)
    loss = sum(sums[name] / counts[name] for name in objective.losses)
    theirs = loss_of(source_outputs(pair.source, data), data)
    np.testing.assert_allclose(loss, theirs, rtol=rtol)
    assert float(sums["sequences_per_pack"] / counts["sequences_per_pack"]) == len(LENGTHS) / len(PACKS)
    assert float(sums["tokens_per_pack"] / counts["tokens_per_pack"]) == sum(LENGTHS) / len(PACKS)
    assert counts["nsp_loss"] == len(LENGTHS)


def curves_of(pair, update, updates):
    objective = PretrainingObjective()
    pair.platform.compile(pair.model, AdamW(5e-3, weight_decay_rate=0.01), objective, update, 1)
    data = dataset_of(updates, update.micro_batches)
    means = make_updates(pair.platform, pair.model, data, len(updates), per_call=1)
    return {name: [one[name] for one in means] for name in objective.losses}


@pytest.mark.parametrize(
    "precision, rtol", [(FLOAT32, 1e-5), pytest.param(MIXED, ROUNDING["bfloat16"], marks=pytest.mark.long)]
)
def test_training_on_packs_is_training_on_their_sequences(a, data, precision, rtol):
    """Every update has the same sequences, in micro batches of packs or in one padded batch, and the same losses."""
    updates = [sequences(a, np.roll(LENGTHS, step), seed=step) for step in range(8)]
    numerics = Numerics(precision)
    padded = converted(a, LENGTH, updates[0]["masked_lm_ids"].shape[1], numerics=numerics)
    alone = curves_of(padded, Update(1), updates)

    packs = [in_packs(update, packs_in_order(update["input_mask"].sum(1))) for update in updates]
    rows = max(len(pack["input_ids"]) for pack in packs) + 1 & ~1
    filled = [{name: with_empty_packs(values, rows) for name, values in pack.items()} for pack in packs]
    packed_curves = curves_of(packed_model(a, numerics=numerics), Update(2), filled)
    for name, losses in alone.items():
        np.testing.assert_allclose(packed_curves[name], losses, rtol=max(rtol, 2e-4), err_msg=name)
    assert alone["mlm_loss"][-1] != pytest.approx(alone["mlm_loss"][0], rel=1e-2)  # weights moved


def with_empty_packs(values, rows):
    filled = np.zeros((rows, *values.shape[1:]), values.dtype)
    filled[: len(values)] = values
    return filled
