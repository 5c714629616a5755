"""Ends of sentences: training and models of NLTK's Punkt, and the full stops of other scripts."""

from __future__ import annotations

from pathlib import Path

import nltk
import pytest
from nltk.tokenize.punkt import PunktSentenceTokenizer, PunktTrainer, save_punkt_params

from data_utils.text.sentence_splitter import (
    Splitter,
    has_trained_model,
    load_parameters,
    load_splitter,
    make_parameters,
    save_parameters,
    train,
)
from tests.support.real_data import real_data
from utilities.errors import UserError


@pytest.fixture(autouse=True)
def any_text_is_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_utils.text.sentence_splitter.MIN_TRAINING_CHARACTERS", 0)


def test_sentences_of_real_text(tmp_path: Path) -> None:
    """They are those of NLTK, with parameters that were saved and loaded."""
    text = real_data("wikipedia_en", "AA", "wiki_00").read_text(encoding="utf-8")[:200_000]
    trainer = PunktTrainer()
    for part in text.split("</doc>"):
        trainer.train(part, finalize=False)
    library = PunktSentenceTokenizer(trainer.get_params())
    save_parameters(train(text.split("</doc>")), tmp_path / "punkt.json")
    splitter = load_splitter(str(tmp_path / "punkt.json"))
    for paragraph in text.split("\n")[:400]:
        sentences = [" ".join(sentence.split()) for sentence in library.tokenize(paragraph)]
        assert splitter.split(paragraph) == [sentence for sentence in sentences if any(map(str.isalnum, sentence))]


def test_an_installed_model_of_nltk_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = make_parameters(["qux"], [("7", "qax")], [], [("then", 2)])
    folder = tmp_path / "tokenizers" / "punkt_tab" / "klingon"
    folder.mkdir(parents=True)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])  # where it may write
    save_punkt_params(parameters, dir=str(folder))
    assert has_trained_model("klingon")
    assert not has_trained_model("vulcan")
    splitter = load_splitter("klingon")
    assert splitter.split("Say qux. this. Then go.") == ["Say qux. this.", "Then go."]
    with pytest.raises(UserError, match="not a name of a Punkt model"):
        has_trained_model("../klingon")


LEARNED = " ".join(
    f"Prof. Smith{n} met Prof. Jones{n} in town{n}. They left at noon{n}. It rained." for n in range(2000)
)


def test_training_learns_the_abbreviations_of_the_corpus(tmp_path: Path) -> None:
    save_parameters(train([LEARNED]), tmp_path / "p.json")
    save_parameters(train([LEARNED]), tmp_path / "q.json")
    assert (tmp_path / "p.json").read_bytes() == (tmp_path / "q.json").read_bytes()
    splitter = load_splitter(str(tmp_path / "p.json"))
    assert splitter.split("Prof. Lee met Prof. Wood. They left.") == ["Prof. Lee met Prof. Wood.", "They left."]
    (tmp_path / "p.json").write_text("{}")
    with pytest.raises(UserError, match="not Punkt parameters"):
        load_parameters(tmp_path / "p.json")


@pytest.mark.parametrize(
    ("paragraph", "sentences"),
    [
        ("It rains. We stay!  Do you?", ["It rains.", "We stay!", "Do you?"]),
        ("今天下雨。我们不走！你呢？好", ["今天下雨。", "我们不走！", "你呢？", "好"]),
        ("他说：“好。”我走了。", ["他说：“好。”", "我走了。"]),
        ("真的！？是。", ["真的！？", "是。"]),
        ("यह घर है। वह गया।", ["यह घर है।", "वह गया।"]),
        ("— … —", []),
    ],
)
def test_splitting(paragraph: str, sentences: list[str]) -> None:
    assert Splitter(make_parameters()).split(paragraph) == sentences
