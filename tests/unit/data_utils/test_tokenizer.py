"""Vocabularies from Hugging Face's tokenizer files, and vocabularies with added tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import BertTokenizerFast

from data_utils.tokenizer import SPECIAL_TOKENS, extended, load_tokenizer, make_tokenizer, read_vocabulary
from utilities.errors import UserError

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZé"
PIECES = [*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), "the", "##ing", ".", "天"]


def write_text(folder: Path, pieces: list[str] = PIECES) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "vocab.txt"
    path.write_text("".join(piece + "\n" for piece in pieces), encoding="utf-8")
    return path


def write_tokenizer(tmp_path: Path, lower_case: bool) -> Path:
    """Write Hugging Face's files of ``PIECES`` into ``tmp_path/model`` without its ``vocab.txt``."""
    text = write_text(tmp_path / "text")
    BertTokenizerFast(str(text), do_lower_case=lower_case).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").unlink()
    return tmp_path / "model"


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("name", ["", "tokenizer.json"])
def test_a_tokenizer_json_is_read_as_its_vocab_txt(name: str, lower_case: bool, tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path, lower_case) / name
    ours, text = read_vocabulary(path), read_vocabulary(tmp_path / "text" / "vocab.txt")
    assert (ours.pieces, ours.content, ours.sha256) == (text.pieces, text.content, text.sha256)
    assert (ours.lower_case, text.lower_case) == (lower_case, None)


def test_a_vocabulary_with_a_byte_order_mark_is_read_like_one_without(tmp_path: Path) -> None:
    path = write_text(tmp_path)
    without = read_vocabulary(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_vocabulary(path) == without


@pytest.mark.parametrize(("end", "rest"), [("\r\n", ""), ("\r", ""), ("\n", "\n\n"), ("\r\n", "\r\n"), (" \n", "")])
def test_slips_of_editors_are_read_as_hugging_face_does(end: str, rest: str, tmp_path: Path) -> None:
    """The last case has white space after words, which no text has, so that they are never found."""
    path, special = write_text(tmp_path), "".join(token + end.strip(" ") for token in SPECIAL_TOKENS)
    words = [piece for piece in PIECES if piece not in SPECIAL_TOKENS]
    path.write_bytes((special + "".join(piece + end for piece in words) + rest).encode())
    theirs = BertTokenizerFast(str(path))
    text = "The naive singing of emile, 天天."
    ours = make_tokenizer(read_vocabulary(path), True, special_tokens=True).encode(text, add_special_tokens=False)
    assert ours.ids == theirs(text, add_special_tokens=False)["input_ids"]


def test_special_tokens_in_a_text_are_those_of_hugging_face_unless_it_is_a_corpus(tmp_path: Path) -> None:
    vocabulary, theirs = read_vocabulary(write_text(tmp_path)), BertTokenizerFast(str(tmp_path / "vocab.txt"))
    text = "the [SEP] thing [MASK]. [sep] [PAD][CLS]"
    read = make_tokenizer(vocabulary, True, special_tokens=True).encode(text, add_special_tokens=False).ids
    assert read == theirs(text, add_special_tokens=False)["input_ids"]
    split = make_tokenizer(vocabulary, True).encode(text, add_special_tokens=False).ids
    assert not {vocabulary.piece_id(token) for token in SPECIAL_TOKENS[2:]} & set(split)


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = write_text(tmp_path)
    before = load_tokenizer(str(path), True).token_to_id(SPECIAL_TOKENS[0])
    path.write_text("first\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    assert load_tokenizer(str(path), True).token_to_id(SPECIAL_TOKENS[0]) == before + 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", r"\[MASK\] is missing"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n", "lines 6 and 8: 'a' occurs twice"),
        (b"\xff\xfe\x00", "not UTF-8"),
    ],
)
def test_broken_vocabularies(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_vocabulary(path)


def test_a_tokenizer_of_another_name_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(UserError, match=r"mine\.json: a tokenizer's file is called tokenizer\.json; rename it"):
        read_vocabulary(tmp_path / "mine.json")


def test_a_tokenizer_whose_ids_have_a_gap_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path, lower_case=True)
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"] = {"[PAD]": 0, "a": 2}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="its ids are not 0, 1, 2") as error:
        read_vocabulary(folder)
    assert "\n" not in str(error.value)


def test_extra_tokens_follow_the_vocabulary(tmp_path: Path) -> None:
    old = read_vocabulary(write_text(tmp_path))
    tokens = tmp_path / "tokens.txt"
    tokens.write_text("covid\n\nthe\n##oma\ncovid\n天气\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"'天气' never occurs as a word.* becomes '天 气'"):
        extended(old, tokens, lower_case=True)
    tokens.write_text("covid\n\nthe\n##oma\ncovid\n", encoding="utf-8-sig")  # as Windows' editor writes it
    new = extended(old, tokens, lower_case=True)
    assert new.pieces == [*PIECES, "covid", "##oma"]
    assert new.content == old.content + b"covid\n##oma\n"
    assert new.special_ids().tolist() == old.special_ids().tolist()
    (tmp_path / "vocab.txt").write_bytes(new.content)
    assert read_vocabulary(tmp_path / "vocab.txt").sha256 == new.sha256
    tokenizer = load_tokenizer(str(tmp_path / "vocab.txt"), True)
    pieces = tokenizer.encode("Covid lymphoma", add_special_tokens=False).tokens
    assert pieces[0] == "covid" and pieces[-1] == "##oma"


@pytest.mark.parametrize("token", ["COVID", "covid-19", "two words", "naïve"])
def test_a_token_that_cannot_occur_is_refused(token: str, tmp_path: Path) -> None:
    old = read_vocabulary(write_text(tmp_path))
    tokens = tmp_path / "tokens.txt"
    with pytest.raises(UserError, match=r"tokens\.txt: cannot be read"):
        extended(old, tokens, lower_case=True)
    tokens.write_text(token + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=f"{token!r} never occurs"):
        extended(old, tokens, lower_case=True)
