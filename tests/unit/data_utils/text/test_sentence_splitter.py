"""Ends of sentences: our Punkt and NLTK's, its training and models, and the full stops of other scripts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import nltk
import pytest
from nltk.tokenize.punkt import (
    PunktLanguageVars,
    PunktParameters,
    PunktSentenceTokenizer,
    PunktToken,
    PunktTrainer,
    save_punkt_params,
)

from data_utils.text.sentence_splitter import (
    Parameters,
    Splitter,
    has_trained_model,
    load_parameters,
    load_splitter,
    punkt_sentences,
    save_parameters,
    split_words,
    train,
)
from tests.support.real_data import real_data
from utilities.errors import UserError

# Joined at random: everything that the rules examine, and cases that break naive rules.
PIECES = [
    *("It", "it.", "U.S.", "e.g.", "3.", "-3,000.5", ".5", "...", "..", ".a", "A.", "J.", "é.", "_.", "٣.", "?", "!?"),
    *("St.-Denis.", ".", ". .", " . . .", "The", "the", "he", "went", "Mr.", "Smith.", ',"', '."', ".)", ".”", "«"),
    *(";", ":", ",", "(see", "[1]", "\t", "\u00a0", "\u2028", "\x1c", "ﬁ.", "你好", "क्या", "ß.", "№", "x--y."),
    *("--", "no.5", "a.b.c."),
]  # fmt: skip
BLANKS = [" ", " ", " ", "", "  "]


def lines(count: int, seed: int = 3) -> Iterator[str]:
    chance = random.Random(seed)
    for _ in range(count):
        yield "".join(chance.choice(PIECES) + chance.choice(BLANKS) for _ in range(chance.randint(1, 25)))


@pytest.fixture(autouse=True)
def any_text_is_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_utils.text.sentence_splitter.MIN_TRAINING_CHARACTERS", 0)


def assert_same_as_nltk(texts: list[str], paragraphs: list[str]) -> None:
    """Compare the parameters learned from texts, and the sentences of paragraphs."""
    trainer = PunktTrainer()
    for text in texts:
        trainer.train(text, finalize=False)
    theirs = trainer.get_params()
    ours = train(texts)
    assert ours == (theirs.abbrev_types, theirs.collocations, theirs.sent_starters, theirs.ortho_context)
    library = PunktSentenceTokenizer(theirs)
    for paragraph in paragraphs:
        assert list(punkt_sentences(paragraph, ours)) == library.tokenize(paragraph), repr(paragraph)


def test_words() -> None:
    library = PunktLanguageVars()
    for line in lines(500):
        result = split_words(line)
        assert [word.text for word in result] == library.word_tokenize(line)
        for word in result:
            token = PunktToken(word.text)
            assert (word.type, word.bare, word.ends) == (token.type, token.type_no_period, token.period_final)
            assert (word.is_upper, word.is_lower) == (token.first_upper, token.first_lower)
            assert word.is_initial == bool(token.is_initial)


def test_sentences_of_random_text() -> None:
    texts = ["\n".join(lines(8, seed)) for seed in range(60)]
    assert_same_as_nltk([*texts, texts[0].replace("\n", "\n\n")], [line for text in texts for line in text.split("\n")])


def test_sentences_of_real_text() -> None:
    text = real_data("wikipedia_en", "AA", "wiki_00").read_text(encoding="utf-8")[:200_000]
    texts = text.split("</doc>")
    assert_same_as_nltk(texts, text.split("\n")[:400])
    chinese = real_data("wikipedia_zh", "AA", "wiki_00").read_text(encoding="utf-8")[:50_000]
    assert_same_as_nltk([chinese], chinese.split("\n")[:100])


def test_an_installed_model_of_nltk_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = PunktParameters()
    parameters.abbrev_types.add("qux")
    parameters.collocations.add(("7", "qax"))
    parameters.ortho_context["then"] = 2
    folder = tmp_path / "tokenizers" / "punkt_tab" / "klingon"
    folder.mkdir(parents=True)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])  # where it may write
    save_punkt_params(parameters, dir=str(folder))
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    assert has_trained_model("klingon")
    assert not has_trained_model("vulcan")
    splitter = load_splitter("klingon")
    assert splitter.parameters == ({"qux"}, {("7", "qax")}, set(), {"then": 2})
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
    assert Splitter(Parameters.empty()).split(paragraph) == sentences
