"""Our Punkt, beside NLTK's: the same words, the same parameters learned, the same sentences."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import nltk
import pytest
from data_utils.text.punkt import Parameters, split, words_of
from data_utils.text.punkt_training import Trainer
from data_utils.text.segmentation import load_splitter, trained_model_exists
from nltk.tokenize.punkt import (
    PunktLanguageVars,
    PunktParameters,
    PunktSentenceTokenizer,
    PunktToken,
    PunktTrainer,
    save_punkt_params,
)

from tests.real_data import real_data
from utilities.errors import UserError

# Joined at random: all that the rules look at, and what breaks naive ones.
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


def learned_by_nltk(texts: list[str]) -> PunktParameters:
    trainer = PunktTrainer()
    for text in texts:
        trainer.train(text, finalize=False)
    trainer.finalize_training()
    return trainer.get_params()


def learned(texts: list[str]) -> Parameters:
    trainer = Trainer()
    for text in texts:
        trainer.add(text)
    return trainer.parameters()


def assert_same(texts: list[str], paragraphs: list[str]) -> None:
    theirs, ours = learned_by_nltk(texts), learned(texts)
    assert ours.abbreviations == theirs.abbrev_types
    assert ours.collocations == theirs.collocations
    assert ours.starters == theirs.sent_starters
    assert ours.orthography == dict(theirs.ortho_context)
    library = PunktSentenceTokenizer(theirs)
    for paragraph in paragraphs:
        assert list(split(paragraph, ours)) == library.tokenize(paragraph), repr(paragraph)


def test_words() -> None:
    library = PunktLanguageVars()
    for line in lines(500):
        found = words_of(line)
        assert [word.text for word in found] == library.word_tokenize(line)
        for word in found:
            token = PunktToken(word.text)
            assert (word.type, word.bare, word.ends) == (token.type, token.type_no_period, token.period_final)
            assert (word.is_upper, word.is_lower, word.is_number) == (
                token.first_upper,
                token.first_lower,
                token.is_number,
            )
            assert word.is_initial == bool(token.is_initial)
            assert word.is_alphabetic == bool(token.is_alpha)
            assert word.has_letter == bool(token.is_non_punct)


def test_what_is_learned_of_random_text_and_made_of_it() -> None:
    texts = ["\n".join(lines(8, seed)) for seed in range(60)]
    assert_same([*texts, texts[0].replace("\n", "\n\n")], [line for text in texts for line in text.split("\n")])


def test_what_is_learned_of_real_text_and_made_of_it() -> None:
    text = real_data("wikipedia_en", "AA", "wiki_00").read_text(encoding="utf-8")[:200_000]
    texts = text.split("</doc>")
    assert_same(texts, text.split("\n")[:400])
    chinese = real_data("wikipedia_zh", "AA", "wiki_00").read_text(encoding="utf-8")[:50_000]
    assert_same([chinese], chinese.split("\n")[:100])


def test_a_trained_model_of_nltk_is_used_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = PunktParameters()
    parameters.abbrev_types.add("qux")
    parameters.collocations.add(("7", "qax"))
    parameters.ortho_context["then"] = 2
    folder = tmp_path / "tokenizers" / "punkt_tab" / "klingon"
    folder.mkdir(parents=True)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])  # where it may write
    save_punkt_params(parameters, dir=str(folder))
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    assert trained_model_exists("klingon")
    assert not trained_model_exists("vulcan")
    splitter = load_splitter("klingon")
    assert splitter.parameters == ({"qux"}, {("7", "qax")}, set(), {"then": 2})
    assert splitter.split("Say qux. this. Then go.") == ["Say qux. this.", "Then go."]
    with pytest.raises(UserError, match="no name of a Punkt model"):
        trained_model_exists("../klingon")
