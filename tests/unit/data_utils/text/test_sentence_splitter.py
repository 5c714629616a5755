"""Ends of sentences: Punkt's training and models, and the full stops of other scripts."""

from __future__ import annotations

from pathlib import Path

import nltk
import pytest
from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer, save_punkt_params

from data_utils.text.sentence_splitter import (
    Splitter,
    has_trained_model,
    load_parameters,
    load_splitter,
    save_parameters,
    train,
)
from utilities.errors import UserError


@pytest.fixture(autouse=True)
def any_text_is_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_utils.text.sentence_splitter.MIN_TRAINING_CHARACTERS", 0)


def test_an_installed_model_of_nltk_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = PunktParameters()
    parameters.abbrev_types.add("qux")
    parameters.collocations.add(("7", "qax"))
    parameters.ortho_context["then"] = 2
    folder = tmp_path / "tokenizers" / "punkt_tab" / "klingon"
    folder.mkdir(parents=True)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
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
    assert Splitter(PunktSentenceTokenizer()).split(paragraph) == sentences
