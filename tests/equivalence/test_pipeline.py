"""A pipeline trains like stages in sequence: equal weights after three updates, for any schedule and devices."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from execution.interface import Update
from execution.software.platform import SoftwarePlatform
from execution.software.precision import Numerics
from keras_extensions.backend import keras
from model.architecture import QA_HEAD
from model.huggingface import build_hf_model
from model.losses import PretrainingObjective, SpanObjective
from model.tasks import PRETRAINING, SQUAD
from pipeline.platform import PipelinePlatform
from tests.equivalence.test_precision import SAMPLES, A, difference, fitted, source
from tests.support.bert_pairs import (
    ROUNDING,
    architecture,
    batch,
    dataset_of,
    on_cpu,
    pair_of,
    weights_by_name,
    with_spans,
)
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
    on = functools.partial(PipelinePlatform, [f"/CPU:{device}" for device in devices], schedule)
    pair = pair_of(
        build_hf_model(task, a, seed=11),
        a,
        on_cpu(on if devices else SoftwarePlatform, xla=xla, recompute=recompute),
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


# Pre-training: on three stages with recomputation, on four with running means. SQuAD on two stages: interleaved with
# dropout, grouped with XLA.
CASES = [(SQUAD, 3, "sequential")]
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


def test_running_mean(in_sequence):
    assert_same(trained(PRETRAINING, 4, "interleaved", reduction="running_mean"), in_sequence[PRETRAINING])


@pytest.mark.parametrize(
    "precision, xla",
    [
        ("float16", False),
        *(pytest.param(*case, marks=pytest.mark.long) for case in [("float16", True), ("mixed_bfloat16", False)]),
    ],
)
def test_a_pipeline_is_the_sequence_in_low_precision(precision, xla):
    kinds = (SoftwarePlatform, functools.partial(PipelinePlatform, ["/CPU:0", "/CPU:1"], "interleaved"))
    one, other = (spans(precision, kind, xla) for kind in kinds)
    # Where they differ in the last digit, a weight may be rounded to its other neighbour in each update.
    assert difference(one.trainable_variables, other.trainable_variables) < (
        8 * ROUNDING["float16" if precision == "float16" else "bfloat16"]
    )


def spans(precision, kind, xla):
    """Return a span model after two updates of four micro batches, with a loss scale that adapts."""
    on = on_cpu(kind, xla=xla, numerics=Numerics(precision, stochastic_rounding=True))
    stages = [["emb", "hid"], ["hid", "qa_head"]] if on.pipelined else None
    pair = pair_of(source(SQUAD), A, on, SQUAD, stages=stages, tail=[QA_HEAD])
    update = Update(4, loss_scale=1024.0, adaptive_loss_scale=True)
    fitted(pair, SpanObjective(), update, [with_spans(batch(A, SAMPLES, seed=step), step) for step in range(2)])
    return pair.model
