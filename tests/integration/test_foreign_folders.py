"""Folders of other projects as users have them: what lies beside the weights is followed, also by an export."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from checkpoints.export.hf_folder import export
from checkpoints.pretrained.opening import open_pretrained
from checkpoints.pretrained.sentence_transformers import embedding_prompt
from data_utils.text.__main__ import main as prepare
from data_utils.tokenizer import read_vocabulary
from tasks.embed import main as embed
from tests.support.real_data import real_data
from tests.support.runs import read_json, write_json

TEXT = "[E1] paris [/E1] is a Covid19 city. xcovid19y [MASK] [e1]"


def embedded(folder: Path, texts: list[str], output: Path, *more: str) -> np.ndarray:
    source = output.with_suffix(".txt")
    source.write_text("\n".join(texts), encoding="utf-8")
    arguments = ["--checkpoint", str(folder), "--file", str(source), "--output", str(output), *more]
    assert embed(arguments) == 0
    return np.load(output)


@pytest.mark.parametrize("case", ["addtok", "noaccents", "st_prompt", "st_sub"])
def test_embeddings_are_those_of_hugging_face_before_and_after_an_export(case: str, tmp_path: Path) -> None:
    folder = real_data("cases", case)
    expected = read_json(real_data("cases", "expected.json"))[case]
    export(str(folder), tmp_path / "exported")
    for pooling in set(expected) & {"mean", "cls"}:
        for number, model in enumerate((folder, tmp_path / "exported")):
            output = tmp_path / f"{pooling}{number}.npy"
            result = embedded(model, expected["texts"], output, "--pooling", pooling)
            np.testing.assert_allclose(result, expected[pooling], atol=1e-5)


def test_a_prompt_is_left_out_on_request(tmp_path: Path) -> None:
    folder = real_data("cases", "st_prompt")
    prompt = embedding_prompt(open_pretrained(str(folder), "x"), "mean")
    whole = embedded(folder, [f"{prompt}paris is a city"], tmp_path / "a.npy", "--prompt", "none")
    np.testing.assert_array_equal(whole, embedded(folder, ["paris is a city"], tmp_path / "b.npy"))


def test_a_data_set_and_its_model_have_the_added_tokens(tmp_path: Path) -> None:
    """Corpora have the ids of Hugging Face; the vocabulary of a data set is complete for another program."""
    folder = real_data("cases", "addtok")
    (tmp_path / "text.txt").write_text("The Covid19 trial was short.\n[E1] paris [/E1] is a city.\n" * 40)
    arguments = ["--text", str(tmp_path / "text.txt"), "--vocab-file", str(folder), "--output", str(tmp_path / "data")]
    assert prepare([*arguments, "--max-seq-length", "32", "--duplicate-factor", "1", "--workers", "1"]) == 0
    manifest = read_json(tmp_path / "data" / "manifest.json")
    assert manifest["settings"]["vocab_size"] == manifest["vocabulary"]["size"] == 247
    theirs = AutoTokenizer.from_pretrained(folder)
    tokens = len(
        theirs("The Covid19 trial was short. [E1] paris [/E1] is a city.", add_special_tokens=False)["input_ids"]
    )
    assert manifest["totals"]["tokens"] == 40 * tokens
    vocabulary, given = read_vocabulary(tmp_path / "data"), read_vocabulary(folder)
    assert (vocabulary.pieces, vocabulary.rules, vocabulary.lower_case) == (given.pieces, given.rules, True)


def test_an_export_with_another_case_writes_the_added_tokens(tmp_path: Path) -> None:
    folder = real_data("cases", "addtok")
    export(str(folder), tmp_path / "cased", lower_case=False)
    expected = AutoTokenizer.from_pretrained(folder, do_lower_case=False)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "cased")
    assert (
        theirs(TEXT)["input_ids"]
        == expected(TEXT)["input_ids"]
        != AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"]
    )


def test_weights_with_fewer_rows_than_the_tokenizer_has_tokens_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(real_data("cases", "base"), folder)
    folder.chmod(0o755)
    write_json(folder / "added_tokens.json", {"new": 244})
    (tmp_path / "texts.txt").write_text("a\n")
    arguments = ["--file", str(tmp_path / "texts.txt"), "--output", str(tmp_path / "out.npy")]
    assert embed(["--checkpoint", str(folder), *arguments]) == 2
    message = capsys.readouterr().err
    assert "has 245 pieces, the model 244 embeddings" in message and message.count("\n") == 1
