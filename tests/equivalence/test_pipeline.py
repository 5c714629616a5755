"""A pipeline trains like stages in sequence: equal weights after three updates, for any schedule and devices."""

from __future__ import annotations

import numpy as np
import pytest

from execution.interface import Update
from execution.software.platform import PipelineLayout
from keras_extensions.backend import keras
from model.architecture import QA_HEAD
from model.huggingface import build_hf_model
from model.losses import PretrainingObjective, SpanObjective
from model.tasks import PRETRAINING, SQUAD
from tests.support.bert_pairs import architecture, batch, dataset_of, on_cpu, pair_of, weights_by_name, with_spans
from tests.support.updates import make_updates

LAYERS, MICRO_BATCHES, UPDATES = 3, 6, 3
STAGES = {
    PRETRAINING: {  # the embedding is tied to the heads, so both are on one device
        3: ([0, 1, 0], ["emb hid_0", "hid_1 hid_2", "enc_out pool heads"]),
        4: ([0, 1, 2, 0], ["emb", "hid_0", "hid_1 hid_2", "enc_out pool heads"]),
    },
    SQUAD: {
        2: ([0, 1], ["emb hid_0", "hid_1 hid_2 qa_head"]),
        3: ([0, 1, 2], ["emb", "hid_0 hid_1", "hid_2 qa_head"]),
        4: ([0, 1, 2, 3], ["emb", "hid_0", "hid_1", "hid_2 qa_head"]),
    },
}
SCHEDULES = ("grouped", "interleaved", "sequential")


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("logical_devices")]


def trained(task, stages=None, schedule="grouped", dropout=0.0, compiled=False, recompute=False, xla=False, **update):
    """Return weights by name and the history of losses; ``compiled`` compiles first, like ``compile_only``."""
    a = architecture(num_hidden_layers=LAYERS, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    devices, names = STAGES[task].get(stages, ([], None))
    layout = PipelineLayout([f"/CPU:{device}" for device in devices], schedule)
    pair = pair_of(
        build_hf_model(task, a, seed=11),
        a,
        on_cpu(xla=xla, recompute=recompute, layout=layout),
        task,
        stages=names and [text.split() for text in names],
        tail=[QA_HEAD] if task == SQUAD else None,
    )
    objective = SpanObjective() if task == SQUAD else PretrainingObjective()
    update = Update(MICRO_BATCHES, **update)
    pair.platform.compile(pair.model, keras.optimizers.SGD(0.5), objective, update, 1)
    batches = [with_spans(batch(a, MICRO_BATCHES * 2, seed=step), seed=step) for step in range(UPDATES)]
    data = dataset_of(batches, MICRO_BATCHES)
    if compiled:
        pair.platform.compile_step(pair.model, data.element_spec)
    (means,) = make_updates(pair.platform, pair.model, data, UPDATES)
    return weights_by_name(pair.blocks), means


def assert_same(one, other):
    for name in other[0]:
        np.testing.assert_allclose(one[0][name], other[0][name], rtol=1e-5, atol=1e-5, err_msg=name)
    for name in other[1]:
        np.testing.assert_allclose(one[1][name], other[1][name], rtol=1e-4, err_msg=name)


@pytest.fixture(scope="module")
def in_sequence():
    return {task: trained(task) for task in STAGES}


# Pre-training on three stages: with recomputation.
CASES = [(SQUAD, 2, "interleaved"), (SQUAD, 3, "sequential"), (SQUAD, 4, "grouped")]
OTHERS = [
    (task, stages, schedule)
    for task, stages in ((PRETRAINING, 4), (SQUAD, 2), (SQUAD, 3), (SQUAD, 4))
    for schedule in SCHEDULES
    if (task, stages, schedule) not in CASES
]


@pytest.mark.parametrize(
    "task, stages, schedule", [*CASES, *(pytest.param(*case, marks=pytest.mark.long) for case in OTHERS)]
)
def test_pipelined_is_sequential(in_sequence, task, stages, schedule):
    assert_same(trained(task, stages, schedule), in_sequence[task])


@pytest.mark.parametrize(
    "schedule", ["interleaved", *(pytest.param(s, marks=pytest.mark.long) for s in ("grouped", "sequential"))]
)
def test_recomputing_each_layer_changes_nothing(in_sequence, schedule):
    assert_same(trained(PRETRAINING, 3, schedule, recompute=True), in_sequence[PRETRAINING])


def test_dropout_is_that_of_the_sequence():
    assert_same(trained(SQUAD, 2, "interleaved", dropout=0.3), trained(SQUAD, dropout=0.3))


def test_compiled_with_xla(in_sequence):
    assert_same(trained(SQUAD, 2, "grouped", xla=True, compiled=True), in_sequence[SQUAD])


@pytest.mark.long
def test_compiling_first_changes_nothing_in_sequence(in_sequence):
    assert_same(trained(PRETRAINING, compiled=True), in_sequence[PRETRAINING])


def test_running_mean(in_sequence):
    assert_same(trained(PRETRAINING, 4, "interleaved", reduction="running_mean"), in_sequence[PRETRAINING])
