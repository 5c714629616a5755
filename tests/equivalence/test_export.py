"""Exported numbers equal the trained ones; PyTorch itself is in test_export_pytorch.py."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json  # room: model_card
import os
import shutil

import numpy as np
import pytest
import transformers
from safetensors import safe_open
from safetensors.numpy import load_file
from transformers import AutoTokenizer, BertConfig, BertTokenizerFast

from checkpoints.export.__main__ import main
from checkpoints.export.hf_folder import export
from checkpoints.folder import read_description
from checkpoints.pretrained.opening import open_pretrained
from checkpoints.writer import rewrite_description
from model.tasks import CLASSIFICATION, PRETRAINING
from tests.support.bert_pairs import architecture, batch
from tests.support.checkpoint_writers import google, hdf5, safetensors
from tests.support.hf_models import (
    TASKS,
    assert_close,
    hugging_face,
    loaded,
    outputs_of,
    source_outputs,
    tensorflow_model,
    write_vocabulary,
)
from tests.support.pytorch_names import pytorch_arrays
from tests.support.runs import (
    read_json,
    write_json,  # room: model_card
)
from tests.support.saved_checkpoints import OPTIONS, PIECES, samples, save
from utilities.errors import UserError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def published(root):
    result = {}
    for task in TASKS:
        saved = save(task, OPTIONS["as published"], root / task / "checkpoints", pieces=PIECES)
        export(str(root / task), root / f"{task}-exported")
        result[task] = saved, root / f"{task}-exported"
    return result


@pytest.mark.parametrize("task", TASKS)
def test_every_number_is_the_trained_one(task, published):
    saved, folder = published[task]
    exported, trained = load_file(folder / "model.safetensors"), pytorch_arrays(saved.source)
    assert exported.keys() == trained.keys()
    for name, value in exported.items():
        assert value.dtype == np.float32
        if name.endswith((".query.bias", ".key.bias", ".value.bias", "attention.output.dense.bias")):
            assert value.shape == trained[name].shape and not value.any()
        elif not name.startswith("cls.predictions.transform."):
            rows = PIECES if name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias") else None
            np.testing.assert_array_equal(value, trained[name][:rows], err_msg=name)


@pytest.mark.parametrize("task", TASKS)
def test_tensorflow_classes_give_the_logits_of_the_saved_model(task, published, root, tmp_path):
    saved, _ = published[task]
    step = root / task / "checkpoints" / "step-00000003"  # any checkpoint of a run
    assert main(["--checkpoint", str(step), "--output", str(tmp_path / "out")]) == 0
    model = tensorflow_model(tmp_path / "out")
    data = samples()
    expected = outputs_of(saved.model, data)
    if task == PRETRAINING:
        expected["masked_lm"] = expected["masked_lm"][..., :PIECES]
    assert_close(source_outputs(task, model, data), expected)


def test_an_encoder_and_a_tokenizer_without_vocab_txt(tmp_path):
    source = hugging_face(PRETRAINING)
    folder = safetensors(source, tmp_path / "in")
    tokenizer = BertTokenizerFast(str(write_vocabulary(folder, PIECES)), do_lower_case=False)
    words = (folder / "vocab.txt").read_bytes()
    tokenizer.save_pretrained(folder)
    (folder / "vocab.txt").unlink()
    export(str(folder), tmp_path / "out", encoder_only=True)
    model = tensorflow_model(tmp_path / "out")
    np.testing.assert_array_equal(model.bert.pooler.dense.kernel, source.bert.pooler.dense.kernel)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes()
    assert (tmp_path / "out" / "vocab.txt").read_bytes() == words
    export(str(folder), tmp_path / "lower", vocabulary=folder, lower_case=True)
    assert read_json(tmp_path / "lower" / "tokenizer_config.json")["do_lower_case"] is True
    assert (tmp_path / "lower" / "vocab.txt").read_bytes() == words


@pytest.mark.parametrize(
    "width, hidden_act",
    [
        *((64, "gelu"), (768, "gelu_new")),
        *(pytest.param(*case, marks=pytest.mark.long) for case in ((64, "gelu_new"), (768, "gelu"))),
    ],
)
def test_the_transform_that_returns_its_input_at_width(width, hidden_act, tmp_path):
    options = {**OPTIONS["as published"], "hidden_act": hidden_act, "hidden_size": width, "num_hidden_layers": 1}
    saved = save(PRETRAINING, options, tmp_path / "checkpoints")
    export(str(tmp_path), tmp_path / "out")
    result = outputs_of(loaded(PRETRAINING, open_pretrained(str(tmp_path / "out"), "k")), batch(architecture()))
    assert_close(result, outputs_of(saved.model, batch(architecture())))


def test_config_and_files(published):
    _, folder = published[PRETRAINING]
    config = read_json(folder / "config.json")
    assert config["architectures"] == ["BertForPreTraining"]
    assert config["hidden_act"] == "gelu" and config["dtype"] == "float32" and config["vocab_size"] == PIECES
    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        digest = hashlib.sha256((folder / "vocab.txt").read_bytes()).hexdigest()
        assert file.metadata() == {"format": "pt", "vocab_txt_sha256": digest}
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1  # that of the user's umask
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json",
        "README.md",  # room: model_card
    }  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.convert_ids_to_tokens(tokenizer("W1 w2")["input_ids"]) == ["[CLS]", "w1", "w2", "[SEP]"]
    assert tokenizer.model_max_length == 48


def test_an_export_with_another_vocabulary_is_refused(published, tmp_path):
    folder = shutil.copytree(published[PRETRAINING][1], tmp_path / "out")
    pieces = (folder / "vocab.txt").read_text().splitlines()
    (folder / "vocab.txt").write_text("\n".join(pieces[:100]) + "\n")
    for path in (folder, folder / "model.safetensors"):
        with pytest.raises(UserError, match=r"vocab\.txt: its SHA-256 is not the one in .*model\.safetensors"):
            open_pretrained(str(path), "pretrained_ckpt_path")


def test_a_description_of_other_sizes_is_refused(root, published, tmp_path):
    run = shutil.copytree(root / PRETRAINING, tmp_path / "run")
    step = run / "checkpoints" / "step-00000003"
    description = read_description(step)
    rewrite_description(step, {"architecture": {**description["architecture"], "hidden_size": 16}})
    with pytest.raises(UserError, match=r"checkpoint\.json: hidden_size is 16, but the weights have"):
        export(str(run), tmp_path / "out")


def test_classes_are_named_as_the_task_names_them(published):
    _, folder = published[CLASSIFICATION]
    config = BertConfig.from_pretrained(folder)
    assert config.architectures == ["BertForSequenceClassification"] and config.num_labels == 3
    assert set(config.label2id) == {"entailment", "neutral", "contradiction"}
    assert config.problem_type == "single_label_classification"


@pytest.mark.usefixtures("published")  # room: model_card
def test_the_card_says_how_it_was_trained_and_what_was_written(root):  # room: model_card
    run = root / PRETRAINING
    config = {"dataset_dir": "/home/someone/data/wiki", "max_seq_length": 128, "optimizer_opts": {"name": "LAMB"}}
    config["bert_model_name"] = 5  # somebody edited it
    write_json(run / "resolved_config.json", {"config": config, "origins": {}, "derived": {}})
    periods = [{"step": step, "metrics": {"mlm_loss": 9.0 - step}} for step in (1, 2, 3)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(period) + "\n" for period in periods))
    write_json(run / "scores.json", {"accuracy": 0.8125})
    export(str(run), root / "with-card")
    card = (root / "with-card" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: fill-mask\n")
    for text in ("AutoModelForPreTraining", "| optimizer | LAMB |", "| dataset_dir | wiki |", "6.0000", "0.8125"):
        assert text in card
    assert "/home/someone" not in card
    assert "8 of BERT's biases" in card and "118 stand for word pieces" in card
    assert "returns its input, the output of the last LayerNorm" in card


@pytest.mark.parametrize("write", [safetensors, google, hdf5])
def test_other_projects_checkpoints_are_exported_with_every_bit_and_all_rows(write, tmp_path):
    source = hugging_face(PRETRAINING)
    folder = write(source, tmp_path / "in")
    write_vocabulary(folder, PIECES)
    export(str(folder), tmp_path / "out")
    after = load_file(tmp_path / "out" / "model.safetensors")
    expected = pytorch_arrays(source)
    assert after.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(after[name], expected[name])
    assert BertConfig.from_pretrained(tmp_path / "out").architectures == ["BertForPreTraining"]


def test_errors_are_one_line_and_leave_nothing_behind(published, root, tmp_path, capsys):
    _, folder = published[PRETRAINING]
    vocabulary = write_vocabulary(tmp_path, 121)
    cases = {
        ("--checkpoint", str(tmp_path / "nowhere")): "nowhere",
        ("--checkpoint", str(root)): "contains no weights",
        ("--vocab-file", str(vocabulary)): "121",
        ("--vocab-file", str(tmp_path / "no.txt")): "no.txt",
        ("--output", str(folder)): "not empty",
    }
    for (flag, value), reason in cases.items():
        arguments = {"--checkpoint": str(root / PRETRAINING), "--output": str(tmp_path / "out"), flag: value}
        assert main([part for pair in arguments.items() for part in pair]) == 2
        errors = capsys.readouterr().err.splitlines()
        assert len(errors) == 1 and errors[0].startswith("error: ") and reason in errors[0]
        assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="does not specify its num_attention_heads"):
        weights = root / PRETRAINING / "checkpoints" / "step-00000003"
        (tmp_path / "bare").mkdir()
        for path in weights.glob("weights.*"):
            (tmp_path / "bare" / path.name).write_bytes(path.read_bytes())
        export(str(tmp_path / "bare"), tmp_path / "out")


@pytest.mark.parametrize(("task", "changes"), [("BertForNextSentencePrediction", {}), ("BertModel", {"extra": True})])
def test_weights_outside_the_encoder_keep_their_names_or_are_left_out(task, changes, tmp_path):
    """Those of Hugging Face's own model: a head is named in full, and a plain encoder has no other weights."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = getattr(transformers, f"TF{task}")(BertConfig(vocab_size=PIECES, max_position_embeddings=48, **sizes))
    model.build()
    given = pytorch_arrays(model)
    more = {"projector.weight": np.ones((2, 2), np.float32)} if changes else {}
    safetensors(model, tmp_path / "model", {**given, **more})
    outcome = export(str(tmp_path / "model"), tmp_path / "out")
    written = load_file(tmp_path / "out" / "model.safetensors")
    beginning = "bert." if task == "BertModel" else ""
    assert sorted(written) == sorted(name[len(beginning) :] for name in given)
    assert read_json(tmp_path / "out" / "config.json")["architectures"] == [task]
    left_out = [note for note in outcome.notes if "is left out" in note]
    assert left_out == [f"`{name}` is no weight of BertModel and is left out." for name in more]


def test_the_card_names_what_was_trained(tmp_path):  # room: model_card
    save(PRETRAINING, OPTIONS["as published"], tmp_path / "both" / "checkpoints", pieces=PIECES)
    save(PRETRAINING, {"use_next_sentence": False}, tmp_path / "words" / "checkpoints", pieces=PIECES)
    for run, is_both in (("both", True), ("words", False)):
        for more in ([], ["--encoder-only"]):
            folder = tmp_path / f"{run}{len(more)}"
            assert main(["--checkpoint", str(tmp_path / run), "--output", str(folder), *more]) == 0
            card = (folder / "README.md").read_text()
            assert card.count("next-sentence prediction") == (2 if is_both else 0)
            assert card.count("masked language model") == 2


def test_an_export_beside_another_is_refused_and_what_a_killed_one_left_is_removed(tmp_path):
    save(PRETRAINING, OPTIONS["as published"], tmp_path / "run" / "checkpoints", pieces=PIECES)
    temporary = tmp_path / ".writing-out"
    temporary.mkdir()
    (temporary / "left.txt").write_text("by a process that was killed")
    with open_folder(temporary) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another command works in this folder"):
            export(str(tmp_path / "run"), tmp_path / "out")
    export(str(tmp_path / "run"), tmp_path / "out")
    assert not (tmp_path / "out" / "left.txt").exists() and not temporary.exists()


@contextlib.contextmanager
def open_folder(folder):
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
