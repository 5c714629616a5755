"""Sentence pairs and masks have the properties that the paper describes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from data_utils.text.masking import (
    SpecialIds,
    choose_tokens,
    choose_words,
    context_free_optimum,
    hide,
    lay_out,
    prediction_counts,
    predictions,
)
from data_utils.text.pairs import Pair, PairArrays, cut_pairs, make_pairs, make_segments, pair_arrays

SPECIAL = SpecialIds(0, 1, 2, 3, 4)


def unit(documents: int = 60, seed: int = 0) -> tuple[list[int], list[int]]:
    """Return sentence and document starts of a random text with sentences of 1 to 40 tokens."""
    chance = random.Random(seed)
    sentence_starts, document_starts = [0], [0]
    for _ in range(documents):
        for _ in range(chance.randint(1, 40)):
            sentence_starts.append(sentence_starts[-1] + chance.randint(1, 40))
        document_starts.append(len(sentence_starts) - 1)
    return sentence_starts, document_starts


def find_document(document_starts: list[int], sentence: int) -> int:
    return int(np.searchsorted(document_starts, sentence, side="right")) - 1


@pytest.mark.parametrize("length", [16, 64, 128])
def test_pairs(length: int) -> None:
    starts, documents = unit()
    pairs = make_pairs(starts, documents, length, 0.1, random.Random(1))
    assert len(pairs) > 100
    covered = set()
    for pair in pairs:
        (a, a_end), (b, b_end) = pair.a, pair.b
        assert a < a_end
        assert b < b_end
        in_document = find_document(documents, a)
        assert find_document(documents, a_end - 1) == in_document
        covered.update(range(a, a_end))
        if pair.is_random:
            assert find_document(documents, b) != in_document
        else:
            assert b == a_end  # B is what follows A
            assert find_document(documents, b_end - 1) == in_document
            covered.update(range(b, b_end))
    assert covered == set(range(documents[-1]))  # every sentence is used


@pytest.mark.parametrize("length", [16, 32, 128])
def test_half_of_the_pairs_are_random(length: int) -> None:
    starts, documents = unit(2000)
    pairs = make_pairs(starts, documents, length, 0.1, random.Random(3))
    assert len(pairs) > max(5000, len(make_pairs(starts, documents, length, 0.0, random.Random(3))))  # some are short
    share = sum(pair.is_random for pair in pairs) / len(pairs)
    assert share == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("length", [8, 24, 64])
def test_in_one_document_random_sentences_neither_overlap_nor_follow(length: int) -> None:
    starts = list(range(0, 10_001, 10))
    pairs = make_pairs(starts, [0, 1000], length, 0.0, random.Random(0))
    labels = [pair.is_random for pair in pairs]
    assert sum(labels) / len(labels) == pytest.approx(0.5, abs=0.1)
    for (a, a_end), (b, b_end), is_random in pairs:
        assert b > a_end or b_end <= a if is_random else b == a_end
        assert a < a_end and b < b_end
    assert [pair.is_random for pair in make_pairs([0, 5, 9], [0, 2], 64, 0.0, random.Random(0))] == [False]
    assert make_pairs([0, 5], [0, 1], 64, 0.0, random.Random(0)) == []


def cut_one_by_one(a: int, b: int, most: int) -> tuple[int, int]:
    """Return the lengths after cutting one token at a time off the longer segment, as published."""
    while a + b > most:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    return a, b


def test_pairs_are_cut_to_the_published_lengths() -> None:
    lengths = [(a, b) for a in range(1, 30) for b in range(1, 30)]
    a, b = np.array(lengths).T
    pairs = PairArrays(np.full(len(a), 100), a, np.full(len(a), 500), b, np.zeros(len(a), int))
    for most in (5, 16, 29, 60):
        cut = cut_pairs(pairs, most, np.random.default_rng(most))
        assert list(zip(cut.a_length.tolist(), cut.b_length.tolist())) == [
            cut_one_by_one(*pair, most) for pair in lengths
        ]
        for start, length, old_start, old_length in (
            (cut.a_start, cut.a_length, 100, a),
            (cut.b_start, cut.b_length, 500, b),
        ):
            assert (start >= old_start).all()
            assert (start + length <= old_start + old_length).all()


def test_both_ends_are_cut_equally() -> None:
    many = 20_000
    pairs = PairArrays(
        np.zeros(many, int), np.full(many, 40), np.zeros(many, int), np.full(many, 10), np.zeros(many, int)
    )
    cut = cut_pairs(pairs, 30, np.random.default_rng(0))
    assert (cut.a_length == 20).all()
    # each of 20 tokens with probability 1/2: mean 10, variance 5
    assert cut.a_start.mean() == pytest.approx(10, abs=0.1)
    assert cut.a_start.var() == pytest.approx(5, rel=0.05)


def test_layout_by_hand() -> None:
    arrays = pair_arrays([Pair(a=(0, 1), b=(1, 3), is_random=False)], [0, 2, 4, 5])
    sequences = lay_out(np.arange(10, 15), arrays, 10, SPECIAL)
    assert sequences.input_ids.tolist() == [[2, 10, 11, 3, 12, 13, 14, 3, 0, 0]]
    assert sequences.input_mask.tolist() == [[1, 1, 1, 1, 1, 1, 1, 1, 0, 0]]
    assert sequences.segment_ids.tolist() == [[0, 0, 0, 0, 1, 1, 1, 1, 0, 0]]
    assert sequences.maskable.astype(int).tolist() == [[0, 1, 1, 0, 1, 1, 1, 0, 0, 0]]


@pytest.mark.parametrize("short_seq_prob", [0.0, 0.3])
@pytest.mark.parametrize("length", [16, 64, 512])
def test_single_segments_are_the_whole_text_in_order(length: int, short_seq_prob: float) -> None:
    starts, documents = unit()
    result = make_segments(starts, documents, length, short_seq_prob, random.Random(3))
    assert not result.is_random.any()
    covered = np.concatenate([np.arange(start, start + count) for start, count in zip(result.a_start, result.a_length)])
    np.testing.assert_array_equal(covered, np.arange(starts[-1]))
    assert result.a_length.min() > 0 and result.a_length.max() <= length - 2
    ends, document_ends = result.a_start + result.a_length, np.array(starts)[documents[1:]]
    crossed = (result.a_start[:, None] < document_ends) & (document_ends < ends[:, None])
    assert not crossed.any()
    whole = np.isin(ends, starts)
    if not short_seq_prob:  # a row that is not full ends with a sentence, and the next one would not have fitted
        assert whole[result.a_length < length - 2].all()
        following = np.array(starts)[np.searchsorted(starts, ends, side="right").clip(max=len(starts) - 1)]
        ends_document = np.isin(ends, document_ends)
        assert (following - result.a_start > length - 2)[~ends_document].all()


def test_layout_of_a_single_segment_by_hand() -> None:
    arrays = make_segments([0, 2, 4, 5, 8], [0, 3, 4], 8, 0.0, random.Random(0))
    sequences = lay_out(np.arange(10, 18), arrays, 8, SPECIAL)
    assert sequences.input_ids.tolist() == [[2, 10, 11, 12, 13, 14, 3, 0], [2, 15, 16, 17, 3, 0, 0, 0]]
    assert sequences.input_mask.tolist() == [[1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0, 0, 0]]
    assert not sequences.segment_ids.any()
    assert sequences.maskable.astype(int).tolist() == [[0, 1, 1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 0, 0, 0, 0]]


def test_prediction_counts_are_the_published_formula() -> None:
    maskable = np.zeros((4, 128), bool)
    for row, tokens in enumerate((125, 47, 2, 1)):
        maskable[row, 1 : 1 + tokens] = True
    # min(P, max(1, round(0.15 × length with [CLS] and two [SEP])))
    assert prediction_counts(maskable, 0.15, 20).tolist() == [19, 8, 1, 1]
    assert prediction_counts(maskable, 0.15, 10).tolist() == [10, 8, 1, 1]


def test_chosen_tokens_are_uniform() -> None:
    rng = np.random.default_rng(0)
    maskable = np.zeros((20000, 16), bool)
    maskable[:, 2:12] = True
    chosen = choose_tokens(maskable, np.full(20000, 3), rng)
    assert (chosen.sum(1) == 3).all()
    assert not chosen[:, [0, 1, 12, 13, 14, 15]].any()
    assert chosen[:, 2:12].mean(0) == pytest.approx(np.full(10, 0.3), abs=0.015)


def test_whole_words() -> None:
    rng = np.random.default_rng(0)
    #           CLS  w  ##  ##  w  SEP  ##  w  w  ##  SEP PAD
    continues = np.array([[0, 0, 1, 1, 0, 0, 1, 0, 0, 1, 0, 0]], bool).repeat(3000, 0)
    maskable = np.array([[0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0]], bool).repeat(3000, 0)
    words = [[1, 2, 3], [4], [6], [7], [8, 9]]
    chosen = choose_words(maskable, continues, np.full(3000, 3), rng)
    assert (chosen.sum(1) <= 3).all()
    assert (chosen.sum(1) == 3).mean() > 0.9
    for word in words:
        assert (chosen[:, word].all(1) == chosen[:, word].any(1)).all()
        assert 0.1 < chosen[:, word[0]].mean() < 0.9
    assert (chosen.sum(1) == sum(chosen[:, word].sum(1) for word in words)).all()


def test_hidden_tokens_split_80_10_10() -> None:
    rng = np.random.default_rng(0)
    ids = np.full((2000, 100), 7)
    chosen = rng.random(ids.shape) < 0.15
    hidden = hide(ids, chosen, SPECIAL.mask, np.arange(5, 10005), rng)
    assert (hidden[~chosen] == 7).all()
    masked = hidden[chosen]
    assert (masked == SPECIAL.mask).mean() == pytest.approx(0.8, abs=0.01)
    assert (masked == 7).mean() == pytest.approx(0.1, abs=0.01)
    randoms = masked[(masked != 7) & (masked != SPECIAL.mask)]
    assert randoms.min() >= 5  # never a special token
    assert randoms.mean() == pytest.approx(5004.5, rel=0.05)


def test_context_free_optimum_is_that_of_bayes_rule() -> None:
    counts = np.array([0, 0, 0, 3, 0, 50, 30, 2, 0, 15])  # 3 is [UNK]; 8 never occurs in the text
    ordinary = [5, 6, 7, 8, 9]
    result = context_free_optimum(counts, np.array(ordinary))
    p = counts / counts.sum()
    loss = accuracy = 0.0
    for shown in ("mask", *range(10)):
        joint = np.zeros(10)  # of the true piece, and of showing this one
        for true in range(10):
            if shown == "mask":
                joint[true] = 0.8 * p[true]
            else:
                joint[true] = p[true] * (0.1 * (shown == true) + 0.1 * (shown in ordinary) / len(ordinary))
        known = joint[joint > 0]
        loss -= float((known * np.log(known / known.sum())).sum())
        accuracy += joint.max()
    assert result.loss_nats == pytest.approx(loss, abs=1e-12)
    assert result.accuracy == pytest.approx(accuracy, abs=1e-12)


def test_predictions_by_hand() -> None:
    ids = np.array([[2, 10, 11, 12, 3], [2, 20, 21, 22, 3]])
    chosen = np.array([[0, 1, 0, 1, 0], [0, 0, 0, 0, 0]], bool)
    features = predictions(ids, chosen, 3)
    assert features["masked_lm_positions"].tolist() == [[1, 3, 0], [0, 0, 0]]
    assert features["masked_lm_ids"].tolist() == [[10, 12, 0], [0, 0, 0]]
    assert features["masked_lm_weights"].tolist() == [[1, 1, 0], [0, 0, 0]]
