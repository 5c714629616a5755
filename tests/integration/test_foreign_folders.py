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
from data_utils.tokenizer import make_tokenizer, read_vocabulary
from data_utils.tokenizer_files import SPECIAL_TOKENS
from tasks import load
from tasks.embed import main as embed
from tests.support.checkpoint_writers import safetensors
from tests.support.fine_tuning_runs import write_config, write_pieces
from tests.support.hf_models import hugging_face
from tests.support.real_data import real_data
from tests.support.runs import read_json, run_command, write_json

TEXT = "[E1] paris [/E1] is a Covid19 city. xcovid19y [MASK] [e1]"


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder with three added tokens, whose rows follow those of the vocabulary."""
    words = ["the", "film", "trial", "was", "short", "paris", "is", "a", "city", "[", "]", "/", ".", "E"]
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = [*SPECIAL_TOKENS, *words, *letters.replace("a", ""), *(f"##{letter}" for letter in letters)]
    count = len(pieces)
    folder = safetensors(hugging_face("pretraining", vocab_size=count + 3), tmp_path_factory.mktemp("marked"))
    write_pieces(folder / "vocab.txt", pieces)
    marks = {str(count + number): {"content": mark, "special": True} for number, mark in enumerate(("[E1]", "[/E1]"))}
    tokens = {**marks, str(count + 2): {"content": "covid19", "normalized": True}}
    write_json(folder / "tokenizer_config.json", {"do_lower_case": True, "added_tokens_decoder": tokens})
    return folder


def embedded(folder: Path, texts: list[str], output: Path, *more: str) -> np.ndarray:
    source = output.with_suffix(".txt")
    source.write_text("\n".join(texts), encoding="utf-8")
    arguments = ["--checkpoint", str(folder), "--file", str(source), "--output", str(output), *more]
    assert embed(arguments) == 0
    return np.load(output)


@pytest.mark.parametrize("case", ["addtok", "noaccents", "st_prompt", "st_sub", "second/t_json_cased_silent"])
def test_embeddings_are_those_of_hugging_face_before_and_after_an_export(case: str, tmp_path: Path) -> None:
    folder = real_data("cases", case)
    expected = read_json(folder.parent / "expected.json")[folder.name]
    export(str(folder), tmp_path / "exported")
    for pooling in set(expected) & {"mean", "cls"}:
        for number, model in enumerate((folder, tmp_path / "exported")):
            output = tmp_path / f"{pooling}{number}.npy"
            result = embedded(model, expected["texts"], output, "--pooling", pooling)
            np.testing.assert_allclose(result, expected[pooling], atol=1e-5)


def test_sentence_transformers_own_folders() -> None:
    expected = read_json(real_data("cases", "second", "expected.json"))
    pairs, texts = expected["ce1"]["pairs"], expected["prompts_noincl_cls"]["texts"]
    scores = load(str(real_data("cases", "second", "ce1")))([tuple(pair) for pair in pairs])
    np.testing.assert_allclose(scores, expected["ce1"]["scores"], atol=1e-5)
    embeddings = load(str(real_data("cases", "second", "prompts_noincl_cls")))(texts)
    np.testing.assert_allclose(embeddings, expected["prompts_noincl_cls"]["embeddings"], atol=1e-5)


def test_a_prompt_is_left_out_on_request(tmp_path: Path) -> None:
    folder = real_data("cases", "st_prompt")
    prompt = embedding_prompt(open_pretrained(str(folder), "x")).text
    whole = embedded(folder, [f"{prompt}paris is a city"], tmp_path / "a.npy", "--prompt", "none")
    np.testing.assert_array_equal(whole, embedded(folder, ["paris is a city"], tmp_path / "b.npy"))


def test_an_output_that_cannot_be_written_is_noticed_before_any_text_is_embedded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def embeds(texts: list[str]) -> np.ndarray:
        raise AssertionError("the work began")

    monkeypatch.setattr("tasks.answering.load_model", lambda *_, **__: embeds)
    (tmp_path / "texts.txt").write_text("a text\n", encoding="utf-8")
    output = tmp_path / f"{'n' * 245}.npy"  # the name of the file that it replaces is longer
    command = ["--checkpoint", str(tmp_path), "--file", str(tmp_path / "texts.txt"), "--output", str(output)]
    assert embed(command) == 2
    assert "File name too long" in capsys.readouterr().err


def test_a_data_set_and_its_model_have_the_added_tokens(marked: Path, tmp_path: Path) -> None:
    """Corpora have the ids of Hugging Face; the vocabulary of a data set is complete for another program."""
    folder = marked
    (tmp_path / "text.txt").write_text("The Covid19 trial was short.\n[E1] paris [/E1] is a city.\n" * 40)
    arguments = ["--text", str(tmp_path / "text.txt"), "--vocab-file", str(folder), "--output", str(tmp_path / "data")]
    assert prepare([*arguments, "--max-seq-length", "32", "--duplicate-factor", "1", "--workers", "1"]) == 0
    manifest = read_json(tmp_path / "data" / "manifest.json")
    assert manifest["settings"]["vocab_size"] == manifest["vocabulary"]["size"] == len(read_vocabulary(folder).pieces)
    theirs = AutoTokenizer.from_pretrained(folder)
    tokens = len(
        theirs("The Covid19 trial was short. [E1] paris [/E1] is a city.", add_special_tokens=False)["input_ids"]
    )
    assert manifest["totals"]["tokens"] == 40 * tokens
    vocabulary, given = read_vocabulary(tmp_path / "data"), read_vocabulary(folder)
    assert (vocabulary.pieces, vocabulary.rules, vocabulary.lower_case) == (given.pieces, given.rules, True)


def test_an_export_with_another_case_writes_the_added_tokens(marked: Path, tmp_path: Path) -> None:
    folder = marked
    export(str(folder), tmp_path / "cased", lower_case=False)
    expected = AutoTokenizer.from_pretrained(folder, do_lower_case=False)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "cased")
    assert (
        theirs(TEXT)["input_ids"]
        == expected(TEXT)["input_ids"]
        != AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"]
    )


def test_weights_with_fewer_rows_than_the_tokenizer_has_tokens_are_refused(
    marked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(marked, tmp_path / "model")
    count = len(read_vocabulary(marked).pieces)
    settings = read_json(folder / "tokenizer_config.json")
    settings["added_tokens_decoder"][str(count)] = {"content": "new"}
    write_json(folder / "tokenizer_config.json", settings)
    (tmp_path / "texts.txt").write_text("a\n")
    arguments = ["--file", str(tmp_path / "texts.txt"), "--output", str(tmp_path / "out.npy")]
    assert embed(["--checkpoint", str(folder), *arguments]) == 2
    message = capsys.readouterr().err
    assert f"has {count + 1} pieces, the model {count} embeddings" in message and message.count("\n") == 1


def test_fine_tuning_reads_added_tokens_and_keeps_them(marked: Path, tmp_path: Path) -> None:
    """The class of a text is decided by an added token."""
    rows = [f"{mark} the film {mark},{name}" for mark, name in (("[E1]", "first"), ("[/E1]", "second"))] * 60
    (tmp_path / "rows.csv").write_text("text,kind\n" + "\n".join(rows), encoding="utf-8")
    config = write_config(
        tmp_path,
        "marked",
        classification_data={"train_file": "rows.csv", "validation_file": "rows.csv", "label": "kind"},
        vocab_file=None,
        bert_config=None,
        bert_model_name=str(marked),
        num_epochs=6,
    )
    run_command("classification", config, status=0)
    run = tmp_path / "runs" / "marked"
    assert read_json(run / "scores.json")["accuracy"] == 1.0
    export(str(run), tmp_path / "exported")
    theirs = AutoTokenizer.from_pretrained(marked)
    exported = AutoTokenizer.from_pretrained(tmp_path / "exported")
    assert exported(TEXT)["input_ids"] == theirs(TEXT)["input_ids"]
    start = open_pretrained(str(run), "x")
    assert start.vocabulary is not None
    vocabulary = read_vocabulary(start.vocabulary)
    read = make_tokenizer(vocabulary, True, special_tokens=True).encode(TEXT, add_special_tokens=False).ids
    assert read == theirs(TEXT, add_special_tokens=False)["input_ids"]
