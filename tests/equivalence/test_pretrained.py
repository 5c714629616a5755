"""Models with weights of any origin give Hugging Face's logits, for every head."""

from __future__ import annotations

import numpy as np
import pytest

from checkpoints.pretrained.opening import open_pretrained
from model.architecture import Architecture
from model.tasks import PRETRAINING, SQUAD
from tests.support.bert_pairs import architecture, batch
from tests.support.checkpoint_writers import FORMATS
from tests.support.hf_models import (
    TASKS,
    assert_close,
    build_hf_model,
    hugging_face,
    loaded,
    outputs_of,
    source_outputs,
)
from tests.support.pytorch_names import pytorch_arrays
from tests.support.saved_checkpoints import OPTIONS, save

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")]


@pytest.fixture(scope="module")
def sources():
    return {task: hugging_face(task) for task in TASKS}


@pytest.mark.parametrize("task", TASKS)
def test_logits_equal_hugging_face(task, sources, tmp_path):
    start = open_pretrained(str(FORMATS["safetensors"](sources[task], tmp_path / "model")), "bert_model_name")
    data = batch(architecture())
    assert_close(outputs_of(loaded(task, start), data), source_outputs(task, sources[task], data))
    report = start.report
    assert (report.missing, report.extra, report.padded, report.neutral) == ([], [], [], [])
    assert report.loaded == len(sources[task].weights)


@pytest.mark.parametrize(
    "form, task",
    [
        *((form, PRETRAINING) for form in FORMATS),
        *(("bert_model.ckpt", task) for task in TASKS[1:]),  # where heads have names of another kind
        *(pytest.param(form, task, marks=pytest.mark.long) for form in [*FORMATS][:-1] for task in TASKS[1:]),
    ],
)
def test_every_format_holds_every_bit_of_the_model(form, task, sources, tmp_path):
    """The logits of one of them are compared above."""
    start = open_pretrained(str(FORMATS[form](sources[task], tmp_path / "model")), "bert_model_name")
    expected = pytorch_arrays(sources[task])
    assert start.weights.keys() == expected.keys()
    for name, weight in start.weights.items():
        np.testing.assert_array_equal(weight.value(), expected[name], err_msg=name)
    assert (start.unknown, start.neutral_weights) == ([], {})
    assert Architecture(**start.architecture) == architecture()


@pytest.mark.parametrize("options", OPTIONS)
def test_native_checkpoints_hold_every_bit_of_the_model(options, tmp_path):
    saved = save(PRETRAINING, OPTIONS[options], tmp_path)
    expected = pytorch_arrays(saved.source)
    start = open_pretrained(str(tmp_path), "pretrained_ckpt_path")
    for name, weight in start.weights.items():
        np.testing.assert_array_equal(weight.value(), expected[name], err_msg=name)
    lacking = {name for name in expected if name not in start.weights}
    assert lacking == set(start.neutral_weights)
    assert {name.split(".")[-1] for name in lacking if "transform" not in name} <= {"bias"}


def test_native_checkpoints_by_run_by_folder_and_by_file(tmp_path):
    save(SQUAD, {}, tmp_path / "run" / "checkpoints")
    step = tmp_path / "run" / "checkpoints" / "step-00000003"
    files = [step / "weights.index", step / "weights", step / "weights.data-00000-of-00001"]
    for path in (tmp_path / "run", tmp_path / "run" / "checkpoints", step, *files):
        start = open_pretrained(str(path), "pretrained_ckpt_path")
        assert start.settings["step"] == 3 and len(start.weights) == 39


def test_the_architecture_of_a_bare_tensorflow_checkpoint_is_known_but_for_the_heads(tmp_path):
    save(PRETRAINING, OPTIONS["split, no prediction bias"], tmp_path)
    (tmp_path / "step-00000003" / "checkpoint.json").unlink()
    start = open_pretrained(str(tmp_path / "step-00000003" / "weights.index"), "pretrained_ckpt_path")
    a = vars(architecture(**OPTIONS["split, no prediction bias"]))
    assert start.architecture == {name: a[name] for name in start.architecture}
    unknown = {"num_attention_heads", "hidden_act", "layer_norm_eps", "initializer_range"}
    assert unknown <= a.keys() - start.architecture.keys()


@pytest.mark.parametrize("task", TASKS)
def test_native_checkpoints_of_layers_that_were_not_replaced(task, tmp_path):
    saved, data = save(task, {}, tmp_path, replace=False), batch(architecture())
    start = open_pretrained(str(tmp_path), "pretrained_ckpt_path")
    assert_close(outputs_of(loaded(task, start), data), outputs_of(saved.model, data))
    assert start.unknown == []


@pytest.mark.parametrize("replace", [True, False])
def test_a_model_trained_without_some_parts_runs_in_layers_that_have_them_all(replace, tmp_path):
    options = OPTIONS["as published"]
    saved, data = save(PRETRAINING, options, tmp_path), batch(architecture())
    start = open_pretrained(str(tmp_path), "pretrained_ckpt_path")
    model = loaded(PRETRAINING, start, replace, **dict.fromkeys(options, True))
    assert_close(outputs_of(model, data), outputs_of(saved.model, data))
    assert "bert.encoder.layer.1.attention.self.key.bias" in start.report.neutral


@pytest.mark.parametrize("task", TASKS[1:])
def test_fine_tuning_starts_from_pretraining(task, tmp_path):
    """The encoder is the checkpoint's; the head keeps its random weights."""
    saved = save(PRETRAINING, OPTIONS["as published"], tmp_path)
    start = open_pretrained(str(tmp_path), "pretrained_ckpt_path")
    fresh = build_hf_model(task, architecture(), seed=99)
    before = pytorch_arrays(fresh)
    start.set_initial_weights(fresh)
    after, pretrained = pytorch_arrays(fresh), pytorch_arrays(saved.source)
    missing = set(start.report.missing)
    assert missing == {name for name in after if name.startswith(("qa_outputs.", "classifier."))}
    for name in after:
        if name.endswith(".bias") and "attention" in name and "LayerNorm" not in name:
            assert not after[name].any()  # pre-training had no such bias
        else:
            np.testing.assert_array_equal(after[name], before[name] if name in missing else pretrained[name])
    assert "cls.seq_relationship.weight" in start.report.extra
