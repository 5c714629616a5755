"""What a text's beginning shows before it is prepared."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tokenizers.normalizers import BertNormalizer

from data_utils.text.__main__ import main as prepare
from data_utils.text.first_look import look, look_at_beginning
from data_utils.text.instances import Settings, make_features
from data_utils.text.tokens import tokenize_text
from data_utils.text.vocabulary import train_vocabulary
from data_utils.tokenizer import SPECIAL_TOKENS, make_tokenizer, read_vocabulary
from tests.unit.data_utils.text.test_sources import source_of
from utilities.errors import UserError

TEXT = {"kind": "text", "whole_file": False, "join_lines": False}
PROSE = "It was a bright cold day in April, and the clocks were striking thirteen. Winston slipped quickly through."
THAI = "ภาษาไทยเขียนติดกันโดยไม่มีช่องว่างระหว่างคำ"


def test_nothing_is_said_of_prose() -> None:
    assert look([PROSE, f"{PROSE}\n{PROSE}"] * 50, TEXT, 1) == []
    assert look(["今天天气很好我们去公园散步" * 20], TEXT, 1) == []


def test_words_that_are_too_long_are_refused() -> None:
    with pytest.raises(UserError, match=r"100% of the text .* put blanks between the words"):
        look([THAI * 10] * 5, TEXT, 1)
    assert look([" ".join([THAI] * 10)] * 5, TEXT, 1) == []
    with pytest.raises(UserError, match="words of more than 100 letters"):
        look([THAI * 10], {"kind": "jsonl"}, 1)
    assert look([PROSE * 5 + " " + "A" * 101], TEXT, 1) == []


def test_files_of_another_option_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "wiki_00"
    path.write_text('<doc id="1" url="u" title="Title">\nTitle\n\nSome text.\n</doc>\n', encoding="utf-8")
    with pytest.raises(UserError, match="--wikiextractor"):
        look_at_beginning(source_of("--text", path))
    assert look_at_beginning(source_of("--wikiextractor", path)) == []


def test_tags_wrapped_lines_and_many_documents_of_a_file_are_noticed(tmp_path: Path) -> None:
    (tags,) = look([f"<p class='a'>{PROSE}</p><br/>"] * 50, TEXT, 1)
    assert "HTML" in tags
    assert look(["if a < b and c > d: " + PROSE] * 50, TEXT, 1) == []
    words = (PROSE.replace(".", ",") * 40).split()
    wrapped = "\n".join(" ".join(words[at : at + 12]) for at in range(0, len(words), 12))
    (lines,) = look([wrapped], TEXT, 1)
    assert "--join-lines" in lines
    assert look([wrapped], {**TEXT, "join_lines": True}, 1) == []
    headlines = "\n".join(" ".join(words[at : at + 9 + at % 7]) for at in range(0, len(words) - 16, 5))
    assert look([headlines], TEXT, 1) == []  # of different lengths, so they are no lines of a page
    cut = wrapped.split("\n")
    paragraphs = ["\n".join(cut[at : at + 6]) for at in range(0, len(cut), 6)]
    (lines,) = look(paragraphs, TEXT, 1)
    assert "--join-lines" in lines and "with --document-per-file blank lines end these" in lines
    assert "--document-per-file" not in look([wrapped], {**TEXT, "whole_file": True}, 1)[0]
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("\n\n".join([PROSE] * 40), encoding="utf-8")
    (many,) = look_at_beginning(source_of("--text", tmp_path))
    assert "--document-per-file" in many
    assert look_at_beginning(source_of("--text", tmp_path, "--document-per-file")) == []


@pytest.mark.parametrize("whole_word", [False, True])
def test_unknown_pieces_are_not_masked(tmp_path: Path, whole_word: bool) -> None:
    """A masked [UNK] would teach to predict [UNK], and count as a word that is right."""
    path = tmp_path / "a.txt"
    path.write_text("some words of a text that is short\n" * 20, encoding="utf-8")
    train_vocabulary([path], tmp_path / "vocab.txt", 200)
    vocabulary = read_vocabulary(tmp_path / "vocab.txt")
    draw = random.Random(1)
    words = [*["some", "words", "of", "a", "text", "that", "is", "short"], "☃", THAI * 3]
    lines = [" ".join(draw.choices(words, k=20)) for _ in range(200)]
    settings = Settings(32, 12, 0.3, whole_word_masking=whole_word, next_sentence=False)
    text = tokenize_text(("\n".join(lines) + "\n\n").encode(), make_tokenizer(vocabulary, True))
    features = make_features(text, vocabulary, settings, 0, 0)
    unknown, real = vocabulary.piece_id("[UNK]"), features["masked_lm_weights"] > 0
    assert (features["input_ids"] == unknown).mean() > 0.05 and real.sum() > 500
    assert not (features["masked_lm_ids"][real] == unknown).any()
    lengths = features["input_mask"].sum(1)
    few = real.sum(1) < [min(12, max(1, round(0.3 * length))) for length in lengths]
    assert few.mean() < (0.2 if whole_word else 0.05), "as many are masked as without unknown pieces"


HINDI = "यह हिन्दी में लिखा गया एक छोटा सा वाक्य है जिसमें मात्राएँ और अनुस्वार भी हैं"


KANA = "ここでは、がぎぐげごのような文字がたくさん使われています。"
CYRILLIC = "мой первый большой дом стоит у реки, и твой район тоже какой-то новый и тихий"


@pytest.mark.parametrize("text", [KANA, CYRILLIC, HINDI, "यह क़लम और ज़मीन है"])
def test_letters_that_would_become_others_and_vowel_signs_that_would_be_lost_are_noticed(text: str) -> None:
    kept = BertNormalizer(lowercase=True, strip_accents=False).normalize_str(text)
    stripped = BertNormalizer(lowercase=True).normalize_str(text)
    assert len(set(kept) - set(stripped)) >= 1  # letters that the text has no more
    (note,) = look([text] * 9, TEXT, 1, strips_marks=True)
    assert "--keep-accents" in note
    assert look([text] * 9, TEXT, 1) == []
    assert look(["Café, naïve, Ångström: " + PROSE, "בְּרֵאשִׁית"] * 9, TEXT, 1, strips_marks=True) == []


def test_whole_words_of_ideographs_are_said_to_be_single_characters() -> None:
    chinese = "今天天气很好，我们去公园散步。"
    (note,) = look([chinese] * 9, TEXT, 1, whole_words=True)
    assert "--whole-word-masking has no effect" in note
    assert look([chinese] * 9, TEXT, 1) == look([PROSE] * 9, TEXT, 1, whole_words=True) == []


@pytest.mark.parametrize(
    ("pieces", "text", "options", "cause"),
    [
        ("▁the ▁film ▁was s", "the film was good", [], "SentencePiece"),
        ("the", "the film was good", [], "lacks its words"),
        ("GAT TAC", "GAT TAC TAC GAT", [], "is of text with capitals; give --cased"),
        ("gat tac", "GAT TAC TAC GAT", ["--cased"], "leave --cased out"),
        ("gat tac", "GÁT TÀC TÁC GÀT", ["--keep-accents"], "leave --keep-accents out"),
    ],
)
def test_a_vocabulary_of_another_text_is_refused_with_the_cause_before_records_are_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pieces: str, text: str, options: list[str], cause: str
) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *pieces.split()]) + "\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text("\n\n".join([f"{text}. " * 8] * 9), "utf-8")
    arguments = ["--text", str(tmp_path / "a.txt"), "--output", str(tmp_path / "data"), "--workers", "1", *options]
    assert prepare([*arguments, "--vocab-file", str(tmp_path / "vocab.txt")]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert "is [UNK]" in line and cause in line and not list((tmp_path / "data").glob("*.tfrecord"))


def test_a_trained_vocabulary_that_is_too_small_asks_for_a_larger_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ideographs = [chr(0x4E00 + 7 * i) for i in range(1_000)]
    lines = ["".join(ideographs[i::40]) + "。" for i in range(40)]
    (tmp_path / "a.txt").write_text("\n\n".join("\n".join(lines) for _ in range(4)), "utf-8")
    arguments = ["--text", str(tmp_path / "a.txt"), "--output", str(tmp_path / "data"), "--workers", "1"]
    assert prepare([*arguments, "--vocab-size", "300"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert "has only 300 pieces; give a larger --vocab-size" in line and "--vocab-file" not in line
    assert prepare([*arguments, "--vocab-size", "1500"]) == 0
