"""Runs start from the export of another run and from other projects' weights."""

from __future__ import annotations

import functools
import logging
from pathlib import Path

import numpy as np
import pytest
from transformers import BertConfig, BertTokenizerFast

from checkpoints.export.__main__ import main as export
from data_utils.tokenizer import load_tokenizer
from settings import metadata
from tests import ROOT
from tests.support.checkpoint_writers import safetensors
from tests.support.hf_models import hugging_face
from tests.support.pytorch_names import pytorch_arrays
from tests.support.runs import (
    SMALL,
    STILL,
    TEXT_VOCABULARY,
    last_checkpoint,
    metrics,
    prepare_dataset,
    read_json,  # room: model_card
    run_command,
    trained,
    write_json,
    write_text,
    write_text_config,
)
from tests.support.saved_checkpoints import weights_of

pytestmark = pytest.mark.slow

write_config = functools.partial(write_text_config, sizes=SMALL)

SIZES = {"num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64}


@pytest.fixture(scope="module")
def dataset(root) -> Path:
    return prepare_dataset(root / "data", write_text(root / "text.txt", documents=20))


@pytest.fixture(scope="module")
def exported(root, dataset) -> Path:
    """The export of a run without biases and without the layer before the masked-LM product."""
    config = write_config(root / "first.json")
    run = trained(config, root / "runs", "--dataset-dir", str(dataset))
    assert export(["--checkpoint", str(run), "--output", str(root / "exported")]) == 0
    return root / "exported"


def test_a_recipe_of_base_takes_weights_of_another_size_and_generated_packs(
    root: Path, exported: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only loading the weights tells their size; ``tests/unit/planning/test_overview.py`` has weights of known size."""
    monkeypatch.setattr(metadata, "_SETTINGS_FILES", ())
    changes = {
        "extends": str(ROOT / "configs" / "squad" / "squad_base.json"),
        "pretrained_ckpt_path": str(exported),
        "generated_dataset": True,
        "max_seq_length": 24,
        "squad": {"max_query_length": 8},
        "packing": {"max_sequences_per_pack": 2},
        "total_num_train_samples": 40,
        "global_batch": {"micro_batch_size": 1, "replicas": 1, "grad_acc_steps_per_replica": 10},
        "execution": {"platform": "software", "xla": False},
    }
    config = write_json(root / "base.json", changes)
    run_command("squad", config, "--output-dir", str(root / "runs"), status=0)
    assert caplog.text.count("2 encoder layers") == 1 and "the model is one stage" in caplog.text
    last = metrics(root / "runs" / "base")[-1]
    assert last["step"] == 2 and last["metrics"]["sequences_per_pack"] == 2
    assert not (root / "runs" / "base" / "predictions.json").exists()  # of generated data


def still(root: Path, name: str, dataset: Path, start: Path, *arguments: str, **changes: object) -> Path:
    """Make a run whose updates hardly change anything."""
    config = write_config(root / f"{name}.json", optimizer_opts=STILL, total_num_train_samples=32, **changes)
    given = ("--dataset-dir", str(dataset), "--pretrained-ckpt-path", str(start), *arguments)
    return trained(config, root / "runs", *given)


def test_the_card_has_the_figures_of_the_run(root, dataset, exported):  # room: model_card
    last = metrics(root / "runs" / "first")[-1]
    card = (exported / "README.md").read_text()
    assert f"| mlm_loss, training, update 12 | {last['metrics']['mlm_loss']:.4f} |" in card
    assert "| updates | 12 |" in card and "| samples | 192 |" in card and "| seed | 1984 |" in card
    entropy = read_json(dataset / "manifest.json")["unigram_entropy_nats"]
    assert f"| mlm_loss, unigram baseline | {entropy:.4f} |" in card


def test_a_run_starts_from_the_export_with_the_same_weights(root, dataset, exported):
    again = weights_of(still(root, "again", dataset, exported))
    trained = weights_of(root / "runs" / "first")
    rows = BertConfig.from_pretrained(exported).vocab_size
    for name, value in trained.items():
        limit = rows if value.shape[0] == TEXT_VOCABULARY else None
        np.testing.assert_allclose(again[name][:limit], value[:limit], atol=1e-8, err_msg=name)
    assert not again["bert.encoder.layer.0.attention.self.key.bias"].max() > 1e-8
    assert "cls.predictions.transform.dense.weight" in again  # unset options are as the weights have them


def test_missing_weights_that_are_allowed_and_other_settings_than_the_weights(root, dataset, caplog):
    source = hugging_face("pretraining", vocab_size=TEXT_VOCABULARY, hidden_act="gelu_new", **SIZES)
    arrays = {name: array for name, array in pytorch_arrays(source).items() if "layer.1.output" not in name}
    folder = safetensors(source, root / "incomplete", arrays)
    allowed = ("--allow-missing-weights", "true", "--bert-config.hidden-act", "gelu")
    with caplog.at_level(logging.WARNING):
        still(root, "incomplete-run", dataset, folder, *allowed)
    assert "bert.encoder.layer.1.output.dense.weight: not in the checkpoint" in caplog.text
    assert "bert_config.hidden_act is gelu, but" in caplog.text


def test_pre_training_continues_from_an_encoder_with_more_word_pieces(root, dataset, caplog):
    """The folder has a tokenizer.json and no vocab.txt, and no head; one token of the text is new."""
    folder, tokens, data = root / "encoder", root / "tokens.txt", root / "more"
    words = dataset / "vocab.txt"
    pieces = words.read_text(encoding="utf-8").splitlines()
    source = hugging_face("pretraining", vocab_size=len(pieces), **SIZES)
    safetensors(source, folder, {name: a for name, a in pytorch_arrays(source).items() if name.startswith("bert.")})
    BertTokenizerFast(str(words)).save_pretrained(folder)
    (folder / "vocab.txt").unlink()
    tokens.write_text(f"new\nlongish\n{pieces[-1]}\n")
    prepare_dataset(data, root / "text.txt", "--vocab-file", str(folder), "--extra-tokens", str(tokens))
    assert (data / "vocab.txt").read_bytes() == words.read_bytes() + b"new\nlongish\n"
    changes = {"bert_config": None, "embedding_serialization_factor": 4}
    with caplog.at_level(logging.INFO):
        run = still(root, "extended", data, folder, **changes)
    assert "cls.predictions.bias: not in the checkpoint, so it starts from random numbers" in caplog.text
    assert "2 word pieces added" in caplog.text
    result = weights_of(run)["bert.embeddings.word_embeddings.weight"]
    assert len(result) % 4 == 0 and len(result) - len(pieces) - 2 in range(4)
    tokenizer = load_tokenizer(str(words), True)
    old = pytorch_arrays(source)["bert.embeddings.word_embeddings.weight"]
    new = [old[tokenizer.encode(word, add_special_tokens=False).ids].mean(axis=0) for word in ("new", "longish")]
    np.testing.assert_allclose(result[: len(pieces) + 2], np.concatenate([old, new]), atol=1e-7)
    assert (last_checkpoint(run) / "vocab.txt").read_bytes() == (data / "vocab.txt").read_bytes()
