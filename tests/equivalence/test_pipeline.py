"""A pipeline trains as stages in sequence do: weights after three updates, whatever the schedule and the devices."""

from __future__ import annotations

import numpy as np
import pytest

from execution.interface import Update
from execution.software.platform import PipelineLayout, SoftwarePlatform
from keras_extensions.backend import keras, tf
from model.architecture import PRETRAINING, SQUAD
from model.bert import assemble
from model.conversion import convert
from model.huggingface import untrained
from model.losses import PretrainingObjective, SpanObjective
from tests.equivalence.bert_pairs import architecture, batch, pretraining_shapes, token_shapes

LAYERS, MICRO_BATCHES, UPDATES, LENGTH = 3, 6, 3, 24
PRETRAINING_STAGES = {  # the embedding is tied to the heads, so both are on one device
    3: ([0, 1, 0], ["emb hid_0", "hid_1 hid_2", "enc_out pool heads"]),
    4: ([0, 1, 2, 0], ["emb", "hid_0", "hid_1 hid_2", "enc_out pool heads"]),
}
SQUAD_STAGES = {
    2: ([0, 1], ["emb hid_0", "hid_1 hid_2 qa_head"]),
    3: ([0, 1, 2], ["emb", "hid_0 hid_1", "hid_2 qa_head"]),
    4: ([0, 1, 2, 3], ["emb", "hid_0", "hid_1", "hid_2 qa_head"]),
}
SCHEDULES = ("grouped", "interleaved", "sequential")


@pytest.fixture(scope="module", autouse=True)
def logical_devices():
    if len(tf.config.list_logical_devices("CPU")) < 4:
        pytest.skip("needs four logical CPU devices, which can only be made before TensorFlow starts")


def trained(
    task="pretraining",
    stages=None,
    schedule="grouped",
    recompute=False,
    xla=False,
    dropout=0.0,
    compiled=False,
    **update,
):
    """Weights by name, and the history of losses; ``compiled`` before, as ``compile_only`` does it."""
    a = architecture(num_hidden_layers=LAYERS, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    devices, names = (PRETRAINING_STAGES if task == "pretraining" else SQUAD_STAGES).get(stages, ([], None))
    layout = PipelineLayout([f"/CPU:{device}" for device in devices], schedule)
    platform = SoftwarePlatform(seed=1, xla=xla, recompute=recompute, layout=layout)
    if task == "pretraining":
        source = untrained(PRETRAINING, a, seed=11)
        blocks, conversion = convert(PRETRAINING, source, a, platform)
        shapes, outputs = pretraining_shapes(LENGTH, 6), ("masked_lm", "next_sentence")
        objective = PretrainingObjective()
    else:
        source = untrained(SQUAD, a, seed=11)
        blocks, conversion = convert(SQUAD, source, a, platform, ["qa_head"])
        shapes, outputs = token_shapes(LENGTH), ("start_logits", "end_logits")
        objective = SpanObjective()
    named = [text.split() for text in names] if names else [[block.name for block in blocks]]
    model = assemble(blocks, shapes, outputs, named, platform)
    conversion.carry_weights(source)
    update = Update(MICRO_BATCHES, **update)
    platform.compile(model, keras.optimizers.SGD(0.5), objective, update, updates_per_execution=1)
    if compiled:
        platform.compile_step(model, data(a).element_spec)
    history = model.fit(data(a), steps_per_epoch=UPDATES, verbose=0).history
    return {f"{block.name}/{i}": w.numpy() for block in blocks for i, w in enumerate(block.weights)}, history


def data(a):
    """Every update's micro batches, with the labels of both tasks."""
    random, parts = np.random.default_rng(2), []
    for step in range(UPDATES):
        part = batch(a, MICRO_BATCHES * 2, LENGTH, seed=step)
        for name in ("start_positions", "end_positions"):
            part[name] = random.integers(0, LENGTH, (MICRO_BATCHES * 2, 1)).astype("int32")
        parts.append({name: value.reshape(MICRO_BATCHES, 2, *value.shape[1:]) for name, value in part.items()})
    return tf.data.Dataset.from_tensor_slices({name: np.stack([part[name] for part in parts]) for name in parts[0]})


def assert_same(one, other):
    for name in other[0]:
        np.testing.assert_allclose(one[0][name], other[0][name], rtol=1e-5, atol=1e-5, err_msg=name)
    for name in other[1]:
        np.testing.assert_allclose(one[1][name], other[1][name], rtol=1e-4, err_msg=name)


@pytest.fixture(scope="module")
def in_sequence():
    return {task: trained(task) for task in ("pretraining", "squad")}


CASES = [("pretraining", 4), ("squad", 2), ("squad", 3), ("squad", 4)]  # pre-training on 3: with recomputation


@pytest.mark.parametrize("task, stages, schedule", [(*case, name) for case in CASES for name in SCHEDULES])
def test_pipelined_is_sequential(in_sequence, task, stages, schedule):
    assert_same(trained(task, stages, schedule), in_sequence[task])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_recomputing_each_layer_changes_nothing(in_sequence, schedule):
    assert_same(trained("pretraining", 3, schedule, recompute=True), in_sequence["pretraining"])


def test_dropout_is_that_of_the_sequence():
    assert_same(trained("squad", 2, "interleaved", dropout=0.3), trained("squad", dropout=0.3))


def test_compiled_with_xla(in_sequence):
    assert_same(trained("squad", 2, "grouped", xla=True, compiled=True), in_sequence["squad"])


def test_running_mean(in_sequence):
    assert_same(trained("pretraining", 4, "interleaved", reduction="running_mean"), in_sequence["pretraining"])
