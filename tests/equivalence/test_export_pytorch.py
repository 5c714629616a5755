"""PyTorch loads exports without a warning and with equal logits, and this project loads models saved by PyTorch.

PyTorch runs in a separate process, as it does for users of the exported folders.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from checkpoints.export.hf_folder import export
from checkpoints.pretrained.opening import open_pretrained
from checkpoints.pretrained.pytorch_file import open_pytorch_file
from checkpoints.state import TrainingState
from checkpoints.writer import write_checkpoint
from keras_extensions.backend import keras
from model.architecture import Architecture
from model.tasks import CLASSIFICATION, PRETRAINING
from tests.support.checkpoint_writers import google
from tests.support.hf_models import (
    TASKS,
    assert_close,
    build_hf_model,
    built,
    hugging_face,
    loaded,
    outputs_of,
    source_outputs,
    write_vocabulary,
)
from tests.support.pytorch_names import pytorch_arrays
from tests.support.pytorch_process import NEEDS_PYTORCH, run_pytorch
from tests.support.saved_checkpoints import OPTIONS, PIECES, samples, save
from utilities.errors import UserError

pytestmark = [pytest.mark.slow, NEEDS_PYTORCH]

READABLE = ("safetensors in parts", "bin", "bin in parts", "state dict", "gamma and beta", "data parallel")
FINE_TUNED = ("everything", "as published")  # the other options concern the masked-LM head
CASES = [(task, options) for task in TASKS for options in (OPTIONS if task == PRETRAINING else FINE_TUNED)]


@pytest.fixture(scope="module")
def exported(root) -> dict:
    """Exports and outputs of saved models by task and options; PyTorch has read the exports, and written its models."""
    outputs, folders = {}, []
    for number, (task, options) in enumerate(CASES):
        saved = save(task, OPTIONS[options], root / f"run-{number}" / "checkpoints", pieces=PIECES)
        folder = root / f"{task}.{number}"
        export(str(root / f"run-{number}"), folder)
        folders.append(folder)
        outputs[task, options] = (folder, outputs_of(saved.model, samples()))
    folders.append(google(hugging_face(PRETRAINING), root / f"{PRETRAINING}.google"))
    np.savez(root / "data.npz", **samples())
    (root / "theirs").mkdir()
    run_pytorch("tests.support.pytorch_side", root / "theirs", root / "data.npz", *folders)
    return outputs


@pytest.fixture(scope="module")
def theirs(root, exported) -> Path:
    return root / "theirs"


@pytest.mark.parametrize("task, options", CASES)
def test_pytorch_loads_an_export_without_a_warning(task, options, exported):
    folder, _ = exported[task, options]
    seen = json.loads(folder.with_name(f"{folder.name}.json").read_text())
    assert seen["log"] == "" and seen["warnings"] == []
    assert not any(seen["loading"].values()), seen["loading"]
    assert seen["tokens"] == [2, 10, 11, 3, 12, 3]  # [CLS] w5 w6 [SEP] w7 [SEP]
    if task == CLASSIFICATION:
        assert sorted(seen["labels"].values()) == ["contradiction", "entailment", "neutral"]


@pytest.mark.parametrize("task, options", CASES)
def test_pytorch_gives_equal_logits(task, options, exported):
    folder, outputs = exported[task, options]
    result = dict(np.load(folder.with_name(f"{folder.name}.npz")))
    if task == PRETRAINING:
        outputs = {**outputs, "masked_lm": outputs["masked_lm"][..., :PIECES]}
    assert_close(result, outputs)


@pytest.mark.parametrize("task, options", CASES)
def test_pytorch_saves_the_same_names_and_numbers_again(task, options, exported):
    folder, _ = exported[task, options]
    ours = load_file(folder / "model.safetensors")
    again = load_file(folder.with_name(f"{folder.name}.again") / "model.safetensors")
    assert ours.keys() == again.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], again[name], err_msg=name)


@pytest.mark.parametrize("task", TASKS)
def test_logits_of_what_pytorch_saved(task, theirs):
    """In one of the formats; the others give the same bits."""
    start = open_pretrained(str(theirs / task / "safetensors"), "bert_model_name")
    expected = dict(np.load(theirs / f"{task}.npz"))
    assert_close(outputs_of(loaded(task, start), samples()), expected)
    assert (start.report.missing, start.report.extra) == ([], [])


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("form", READABLE)
def test_every_format_of_pytorch_gives_the_same_bits(form, task, theirs):
    first, start = (open_pretrained(str(theirs / task / each), "bert_model_name") for each in ("safetensors", form))
    assert start.weights.keys() == first.weights.keys()
    for name, weight in start.weights.items():
        np.testing.assert_array_equal(weight.value(), first.weights[name].value(), err_msg=name)
    assert (start.unknown, start.neutral_weights, start.architecture) == ([], {}, first.architecture)


def test_half_precision_is_read_as_it_is(theirs):
    start = open_pretrained(str(theirs / PRETRAINING / "bfloat16"), "bert_model_name")
    whole = np.load(theirs / f"{PRETRAINING}.weights.npz")
    name = "bert.encoder.layer.1.output.dense.weight"
    np.testing.assert_allclose(start.weights[name].value(), whole[name], rtol=2**-8)


def test_a_file_from_before_pytorch_1_6_is_refused_with_a_command_that_converts_it(theirs):
    folder = theirs / PRETRAINING / "before 1.6"
    with pytest.raises(UserError, match="not a zip file") as refused:
        open_pretrained(str(folder), "bert_model_name")
    command = str(refused.value).split("installed: ")[1]
    subprocess.run(command.replace("python ", f"{sys.executable} ", 1), shell=True, check=True)
    start = open_pretrained(str(folder), "bert_model_name")
    whole = np.load(theirs / f"{PRETRAINING}.weights.npz")
    np.testing.assert_array_equal(start.weights["cls.predictions.bias"].value(), whole["cls.predictions.bias"])


def test_a_whole_model_is_refused_with_a_command_that_converts_it(theirs):
    folder = theirs / "whole model"
    with pytest.raises(
        UserError, match=r"it asks for torch\.nn\.modules\.linear\.Linear.* whose code this runs"
    ) as refused:
        open_pytorch_file(folder / "pytorch_model.bin")
    command = str(refused.value).split("installed: ")[1]
    subprocess.run(command.replace("python ", f"{sys.executable} ", 1), shell=True, check=True)
    assert {name: value.shape for name, value in load_file(folder / "model.safetensors").items()} == {
        "weight": (2, 3), "bias": (2,)
    }  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_from_pytorch_through_our_checkpoint_and_back_every_bit_is_the_same(task, theirs, tmp_path):
    folder = theirs / task / "safetensors"
    start = open_pretrained(str(folder), "bert_model_name")
    a = Architecture(**{**start.architecture, "vocab_size": 128})  # padded on the way
    source = build_hf_model(task, a, seed=1)
    start.set_initial_weights(source)
    _, blocks = built(task, source, a)
    description = {"task": task, "architecture": dataclasses.asdict(a)}
    state = TrainingState(blocks, keras.optimizers.SGD(0.1))
    write_checkpoint(state.copy(), tmp_path / "ours", 1, description)
    export(str(tmp_path / "ours"), tmp_path / "back", write_vocabulary(tmp_path, 120))
    before, after = load_file(folder / "model.safetensors"), load_file(tmp_path / "back" / "model.safetensors")
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_array_equal(before[name], after[name], err_msg=name)


def test_the_table_of_names_that_other_tests_rely_on_is_pytorchs(theirs):
    for task in TASKS:
        whole = np.load(theirs / f"{task}.weights.npz")
        tied = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "bert.embeddings.position_ids"}
        ours = pytorch_arrays(hugging_face(task))
        assert {name: whole[name].shape for name in whole if name not in tied} == {n: a.shape for n, a in ours.items()}


def test_googles_names_that_other_tests_rely_on_are_those_that_transformers_reads(root, exported):
    result = dict(np.load(root / f"{PRETRAINING}.google.npz"))
    assert_close(result, source_outputs(PRETRAINING, hugging_face(PRETRAINING), samples()))
