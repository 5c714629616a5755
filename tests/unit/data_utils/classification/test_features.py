"""Model inputs of texts and pairs equal those of Hugging Face's tokenizer and of the loop in BERT's own script."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from data_utils.classification.features import CHUNK, kept_lengths, text_features
from data_utils.tokenizer import SPECIAL_TOKENS, load_tokenizer
from tests.support.real_data import real_data

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    path = tmp_path / "vocab.txt"
    pieces = [*SPECIAL_TOKENS, *LETTERS, *("##" + letter for letter in LETTERS), "天", "气", "the", "."]
    path.write_text("".join(piece + "\n" for piece in pieces), encoding="utf-8")
    return load_tokenizer(str(path), True)


def cut_one_by_one(lengths: list[int], most: int) -> list[int]:
    """Cut by the loop of Devlin et al.'s ``run_classifier.py``: the longest text loses a piece, in a tie the last."""
    kept = list(lengths)
    while sum(kept) > most:
        kept[max(range(len(kept)), key=lambda text: (kept[text], text))] -= 1
    return kept


def test_the_longest_text_is_cut_first() -> None:
    single = np.arange(14)[:, None]
    pairs = np.array([[a, b] for a in range(14) for b in range(14)])
    triples = np.random.default_rng(0).integers(0, 12, (300, 3))
    for lengths in (single, pairs, triples):
        for most in range(2, 34):
            expected = [cut_one_by_one(row, most) for row in lengths.tolist()]
            assert kept_lengths(lengths, most).tolist() == expected


def test_pairs_by_hand(tokenizer: Tokenizer) -> None:
    features = text_features(tokenizer, [("The a.", "天B"), ("c", ""), ("a a a a a a", "b b b b b")], 9)
    rows = [
        ["[CLS]", "the", "a", ".", "[SEP]", "天", "b", "[SEP]", "[PAD]"],
        ["[CLS]", "c", "[SEP]", "[SEP]"] + ["[PAD]"] * 5,
        ["[CLS]", "a", "a", "a", "[SEP]", "b", "b", "b", "[SEP]"],
    ]
    assert features.arrays["input_ids"].tolist() == [[tokenizer.token_to_id(piece) for piece in row] for row in rows]
    assert features.arrays["input_mask"].tolist() == [[1] * 8 + [0], [1] * 4 + [0] * 5, [1] * 9]
    segments = [[0] * 5 + [1] * 3 + [0], [0] * 3 + [1] + [0] * 5, [0] * 5 + [1] * 4]
    assert features.arrays["segment_ids"].tolist() == segments
    assert features.truncated == 1 and features.unknown == 0


def test_separate_texts_share_the_length_of_their_sample(tokenizer: Tokenizer) -> None:
    samples = [("a b c d", "the", "a b c"), ("a", "b c", "")]
    features = text_features(tokenizer, samples, 12, separate=True)
    expected = text_features(tokenizer, [("a b c",), ("the",), ("a b",), ("a",), ("b c",), ("",)], 12)
    for name, values in expected.arrays.items():
        np.testing.assert_array_equal(features.arrays[name], values)
    assert features.lengths.reshape(2, 3).sum(axis=1).tolist() == [12, 9] and features.truncated == 1


def test_unknown_pieces_are_counted(tokenizer: Tokenizer) -> None:
    features = text_features(tokenizer, [("ж a",), ("ж ж",)], 8)
    assert features.unknown == pytest.approx(3 / 8)


def test_many_texts_stay_in_order(tokenizer: Tokenizer) -> None:
    chance = random.Random(1)
    texts = [("".join(chance.choices(LETTERS, k=4)),) for _ in range(CHUNK + 100)]
    arrays = text_features(tokenizer, texts, 8).arrays
    for row in (0, CHUNK - 1, CHUNK, CHUNK + 99):
        alone = text_features(tokenizer, [texts[row]], 8).arrays
        np.testing.assert_array_equal(arrays["input_ids"][row], alone["input_ids"][0])


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_equal_to_hugging_face(language: str) -> None:
    """The reference is Hugging Face's slow tokenizer, which cuts like BERT's own script."""
    transformers = pytest.importorskip("transformers")
    if language == "english":
        path = real_data("vocab", "vocab-bert-base-uncased.txt")
        lines = real_data("glue", "MRPC", "dev.tsv").read_text(encoding="utf-8-sig").splitlines()[1:150]
        texts = [(line.split("\t")[3], line.split("\t")[4]) for line in lines]
    else:
        path = real_data("vocab", "vocab-bert-base-chinese.txt")
        article = real_data("wikipedia_zh", "AA", "wiki_00").read_text(encoding="utf-8").splitlines()[3:120]
        texts = list(zip(article, article[::-1]))
    theirs = transformers.BertTokenizer(str(path), do_lower_case=True)
    for length in (24, 128):
        ours = text_features(load_tokenizer(str(path), True), texts, length).arrays
        for sample, (first, second) in enumerate(texts):
            expected = theirs(first, second, max_length=length, truncation="longest_first", padding="max_length")
            assert ours["input_ids"][sample].tolist() == expected["input_ids"]
            assert ours["input_mask"][sample].tolist() == expected["attention_mask"]
            assert ours["segment_ids"][sample].tolist() == expected["token_type_ids"]
