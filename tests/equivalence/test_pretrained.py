"""Weights of every origin in, Hugging Face's logits out, for every head."""

from __future__ import annotations

import numpy as np
import pytest

from model.architecture import PRETRAINING
from tests.equivalence.bert_pairs import architecture, batch
from tests.unit.pretrained.models import (
    TASKS,
    assert_close,
    built,
    hugging_face,
    loaded,
    outputs_of,
    source_outputs,
    untrained,
)
from tests.unit.pretrained.writers import FORMATS
from utilities.checkpoints.state import save_checkpoint
from utilities.pretrained.opening import open_pretrained

pytestmark = pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")


@pytest.fixture(scope="module")
def sources():
    return {task: hugging_face(task) for task in TASKS}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("form", FORMATS)
def test_logits_equal_hugging_face(form, task, sources, tmp_path):
    folder = FORMATS[form](sources[task], tmp_path / "model")
    start = open_pretrained(str(folder), "bert_model_name")
    data = batch(architecture())
    assert_close(outputs_of(loaded(task, start), data), source_outputs(task, sources[task], data))
    report = start.report()
    assert (report.missing, report.extra, report.padded, report.supplied) == ([], [], [], [])
    assert report.loaded == len(sources[task].weights)


OPTIONS = {
    "everything": {},
    "as published": {
        "use_qkv_bias": False,
        "use_qkv_split": False,
        "use_projection_bias": False,
        "use_cls_layer": False,
    },
    "split, no prediction bias": {"use_qkv_bias": False, "use_prediction_bias": False},
    "tanh GeLU": {"hidden_act": "gelu_new", "use_cls_layer": False},
}


def saved(task, options, folder, replace=True, seed=5):
    """A checkpoint as training writes it, and the outputs of the model that was saved."""
    a = architecture(**options)
    source = hugging_face(task, seed=seed, **options)
    model, blocks = built(task, source, a, replace)
    facts = {"task": task, "architecture": {**vars(a)}, "lower_case": True}
    save_checkpoint(folder, 3, blocks, no_optimizer(), facts)
    return model


def no_optimizer():
    from keras_extensions.backend import keras

    return keras.optimizers.SGD(0.1)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("options", OPTIONS)
def test_own_checkpoints_give_what_the_saved_model_gives(options, task, tmp_path):
    model = saved(task, OPTIONS[options], tmp_path)
    data = batch(architecture())
    expected = outputs_of(model, data)
    for path in (tmp_path, tmp_path / "step-00000003", tmp_path / "step-00000003" / "weights.index"):
        again = loaded(task, open_pretrained(str(path), "pretrained_ckpt_path"))
        for name, values in outputs_of(again, data).items():
            np.testing.assert_array_equal(values, expected[name])


@pytest.mark.parametrize("task", TASKS)
def test_own_checkpoints_of_layers_that_were_not_replaced(task, tmp_path):
    model = saved(task, {}, tmp_path, replace=False)
    data = batch(architecture())
    assert_close(outputs_of(loaded(task, open_pretrained(str(tmp_path), "k")), data), outputs_of(model, data))


@pytest.mark.parametrize("task", TASKS)
def test_a_model_trained_without_some_parts_runs_in_layers_that_have_them_all(task, tmp_path):
    options = OPTIONS["as published"]
    model = saved(task, options, tmp_path)
    start = open_pretrained(str(tmp_path), "pretrained_ckpt_path")
    complete = dict.fromkeys(options, True)
    data = batch(architecture())
    for replace in (True, False):
        assert_close(outputs_of(loaded(task, start, replace, **complete), data), outputs_of(model, data))
    assert "bert.encoder.layer.1.attention.self.key.bias" in start.report().supplied


@pytest.mark.parametrize("task", TASKS[1:])
def test_fine_tuning_starts_from_pretraining(task, tmp_path):
    """The encoder is the checkpoint's; the head stays as it was drawn."""
    saved(PRETRAINING, OPTIONS["as published"], tmp_path)
    start = open_pretrained(str(tmp_path), "pretrained_ckpt_path")
    fresh = untrained(task, architecture(), seed=99)
    head = [variable for variable in fresh.weights if not variable.name.startswith("bert/")]
    before = [variable.numpy() for variable in head]
    start.fill_source(fresh)
    for variable, value in zip(head, before):
        np.testing.assert_array_equal(variable.numpy(), value)
    pretrained = hugging_face(PRETRAINING, **OPTIONS["as published"])
    table = fresh.bert.embeddings.weight.numpy()
    np.testing.assert_array_equal(table, pretrained.bert.embeddings.weight.numpy())
    kernel = fresh.bert.encoder.layer[1].attention.self_attention.key.kernel.numpy()
    np.testing.assert_array_equal(kernel, pretrained.bert.encoder.layer[1].attention.self_attention.key.kernel.numpy())
    assert len(start.report().missing) == len(head)
    assert all(name.startswith(("qa_outputs", "classifier")) for name in start.report().missing)
    assert "cls.seq_relationship.weight" in start.report().extra
