"""A folder of ``run_from_text.py``, also a renamed or unfinished one, where a checkpoint or a run is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import BertTokenizerFast

from checkpoints.export.__main__ import main as export
from checkpoints.pretrained.opening import open_pretrained
from model.tasks import PRETRAINING
from reports.__main__ import main as report
from reports.run_files import read_run_folder
from tasks.embed import main as embed
from tasks.from_text.command import main as from_text
from tests.support.checkpoint_writers import hdf5
from tests.support.fine_tuning_runs import run_folder, write_config, write_sst2
from tests.support.hf_models import hugging_face
from tests.support.runs import STILL, read_json, run_command
from utilities.errors import UserError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a command that has ended, and that was renamed since."""
    begun = tmp_path / "begun"
    for length, loss in ((32, 5.0), (128, 4.0)):
        (begun / str(length)).mkdir(parents=True)
        (begun / str(length) / "scores.json").write_text(json.dumps({"mlm_loss": loss}))
    (begun / "plan.json").write_text(json.dumps({"command": {}, "recipe": {"lengths": [32, 128]}}))
    source = hugging_face(PRETRAINING)
    (begun / "model").mkdir()
    hdf5(source, begun / "model")
    words = [f"word{number}" for number in range(source.config.vocab_size - 5)]
    (begun / "model" / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n")
    return begun.rename(tmp_path / "renamed")


def table(start: Any) -> np.ndarray:
    return next(weight.read() for name, weight in start.weights.items() if "word_embeddings" in name)


def test_its_model_is_the_checkpoint(folder: Path, tmp_path: Path) -> None:
    start = open_pretrained(str(folder), "--checkpoint")
    assert np.array_equal(table(start), table(open_pretrained(str(folder / "model"), "--checkpoint")))
    assert start.vocabulary == folder / "model" / "vocab.txt"
    assert export(["--checkpoint", str(folder), "--output", str(tmp_path / "out")]) == 0
    assert np.array_equal(table(open_pretrained(str(tmp_path / "out"), "--checkpoint")), table(start))


def test_it_is_continued(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "mine.txt"
    text.write_text("\n\n".join(f"word{number} is the word of {number}. " * 20 for number in range(50)))
    words = ["--text", str(text), "--hours", "1", "--plan", "--start-from", str(folder), "--output-dir", str(tmp_path)]
    assert from_text([*words, "--lengths", "16"], 0.0) == 0
    assert str(folder / "model") in capsys.readouterr().out


@pytest.mark.parametrize("plan", [[], ["--plan"]])
def test_capitals_that_its_tokenizer_loses_are_refused_before_any_work(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], plan: list[str]
) -> None:
    text = tmp_path / "mine.txt"
    text.write_text("\n\n".join(f"word{number} is the word of {number}. " * 20 for number in range(50)))
    BertTokenizerFast(str(folder / "model" / "vocab.txt"), do_lower_case=True).save_pretrained(folder / "model")
    words = ["--text", str(text), "--hours", "1", "--start-from", str(folder), "--output-dir", str(tmp_path)]
    assert from_text([*words, "--cased", *plan], 0.0) == 2
    assert "lower-cases text; leave --cased out" in capsys.readouterr().err
    assert not (tmp_path / "mine").exists()


def test_it_is_fine_tuned(folder: Path, tmp_path: Path) -> None:
    """At no learning rate, the encoder that is trained is the folder's model."""
    write_sst2(tmp_path)
    given = {"bert_config": None, "vocab_file": None, "optimizer_opts": STILL, "num_epochs": 1}
    config = write_config(tmp_path, "tuned", glue_task="sst2", pretrained_ckpt_path=str(folder), **given)
    run = run_folder("classification", config)
    expected = table(open_pretrained(str(folder / "model"), "--checkpoint"))
    np.testing.assert_allclose(table(open_pretrained(str(run), "--checkpoint"))[: len(expected)], expected, atol=1e-6)


def test_a_fine_tuning_of_it_is_planned_as_that_of_its_model(folder: Path, tmp_path: Path) -> None:
    write_sst2(tmp_path)
    config = write_config(tmp_path, "tuned", glue_task="sst2", num_epochs=1, bert_config=None, vocab_file=None)
    content = read_json(config)
    del content["max_seq_length"]  # that of the data
    config.write_text(json.dumps(content))
    plans = []
    for path in (str(folder), str(folder / "model")):
        plan = run_command("classification", config, "--plan", "--pretrained-ckpt-path", path, status=0).output
        plans.append([word for word in plan.replace(path, "PATH").split() if set(word) != {"-"}])
    assert plans[0] == plans[1] and "none is cut" in " ".join(plans[0])


def test_it_embeds_texts_as_transformers_does(folder: Path, tmp_path: Path) -> None:
    texts = ["word1 word2 word3", "word7"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    output = tmp_path / "embeddings.npy"
    assert embed(["--checkpoint", str(folder), "--file", str(tmp_path / "texts.txt"), "--output", str(output)]) == 0
    model, tokenizer = hugging_face(PRETRAINING).bert, BertTokenizerFast(str(folder / "model" / "vocab.txt"))
    for text, found in zip(texts, np.load(output)):
        hidden = model(**tokenizer(text, return_tensors="tf")).last_hidden_state  # (1, S, H)
        np.testing.assert_allclose(found, np.mean(hidden, axis=(0, 1)), atol=1e-5)


def test_its_last_run_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report([str(folder)]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "128" / "report.html")
    (folder / "128" / "scores.json").unlink()  # not begun
    assert read_run_folder(folder).scores == {"mlm_loss": 5.0}


def test_an_unfinished_one_is_refused(folder: Path) -> None:
    (folder / "model").rename(folder / ".model")
    with pytest.raises(
        UserError, match=r"^--checkpoint: .*renamed is a folder of run_from_text\.py that has no model/"
    ):
        open_pretrained(str(folder), "--checkpoint")
    (folder / "32" / "scores.json").unlink()
    (folder / "128" / "scores.json").unlink()
    with pytest.raises(UserError, match="contains no run"):
        read_run_folder(folder)
