"""Makes the inputs and masked-LM labels of pairs, a whole batch at a time.

Source: Devlin et al. 2019, section 3.1 (task 1): 15 % of the tokens are predicted; of these 80 % become
[MASK], 10 % a random token, 10 % stay.

Shapes: N pairs, S max_seq_length, P max_predictions_per_seq, V vocabulary size.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from data_utils.records.manifest import ContextFree
from data_utils.text.pairs import SPECIAL_IN_PAIR, PairArrays

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1


class SpecialIds(NamedTuple):
    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


class Sequences(NamedTuple):
    """Pairs laid out as [CLS] A [SEP] B [SEP] [PAD]…, single segments as [CLS] A [SEP] [PAD]…; all (N, S)."""

    input_ids: np.ndarray  # int32
    input_mask: np.ndarray  # int8
    segment_ids: np.ndarray  # int8
    maskable: np.ndarray  # bool: tokens of A and B, not the special ones


def lay_out(tokens: np.ndarray, pairs: PairArrays, max_seq_length: int, special: SpecialIds) -> Sequences:
    """Gather the tokens of pairs from the shard's (T,) tokens into sequences; every pair must fit."""
    column = np.arange(max_seq_length, dtype=np.int32)[None, :]  # (1, S)
    a_start, a_length, b_start, b_length = (values.astype(np.int32)[:, None] for values in pairs[:4])  # (N, 1)
    first_sep = a_length + 1
    last_sep = first_sep + b_length + 1  # the first one in single segments
    source = column + np.where(column < first_sep, a_start - 1, b_start - first_sep - 1)
    ids = tokens.take(source, mode="clip").astype(np.int32, copy=False)  # (N, S)
    inside = column <= last_sep
    ids[~inside] = special.pad
    ids[:, 0] = special.cls
    rows = np.arange(len(ids))
    ids[rows, first_sep[:, 0]] = special.sep
    ids[rows, last_sep[:, 0]] = special.sep
    maskable = inside & (column > 0) & (column != first_sep) & (column != last_sep)
    return Sequences(ids, inside.astype(np.int8), (inside & (column > first_sep)).astype(np.int8), maskable)


def choose_tokens(maskable: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Choose ``counts`` (N,) of the maskable tokens (N, S) of each row with equal probability; return (N, S) bool."""
    # The high bits of a key are random, the low ones are the position: sorting brings positions into random order, and
    # no two keys are equal, so every machine sorts them in the same way.
    length = maskable.shape[1]
    position_bits = (length - 1).bit_length()
    keys = rng.integers(1 << 31, size=maskable.shape, dtype=np.uint32) >> np.uint32(position_bits)
    keys = keys << np.uint32(position_bits) | np.arange(length, dtype=np.uint32)
    keys[~maskable] |= np.uint32(1 << 31)  # sorted after all others
    most = int(counts.max(initial=0))
    keys.sort(axis=1)
    positions = keys[:, :most] & np.uint32((1 << position_bits) - 1)
    chosen = np.zeros(maskable.shape, bool)
    np.put_along_axis(chosen, positions.astype(np.int64), np.arange(most) < counts[:, None], axis=1)
    return chosen


def choose_words(
    maskable: np.ndarray, continues: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Choose whole words, all pieces of a word or none, up to ``counts`` tokens of each row.

    Words come in random order; one that would exceed the count is left out and smaller ones may follow, as in the
    published whole-word models.

    Masks are (N, S) bool, the ``counts`` (N,); ``continues`` says whether a piece continues the previous one's word.
    """
    chosen = np.zeros(maskable.shape, bool)
    begins = maskable.copy()  # a segment that was cut within a word begins with a piece that continues no word
    begins[:, 1:] &= ~(continues[:, 1:] & maskable[:, :-1])
    ends = maskable.copy()
    ends[:, :-1] &= ~maskable[:, 1:] | begins[:, 1:]
    for row in range(maskable.shape[0]):
        word_starts = np.flatnonzero(begins[row])
        word_ends = np.flatnonzero(ends[row]) + 1
        left = int(counts[row])
        for word in rng.permutation(len(word_starts)).tolist():
            start, end = word_starts[word], word_ends[word]
            if end - start <= left:
                chosen[row, start:end] = True
                left -= end - start
            if left == 0:
                break
    return chosen


def prediction_counts(
    maskable: np.ndarray, masked_lm_prob: float, max_predictions: int, special: int = SPECIAL_IN_PAIR
) -> np.ndarray:
    """Return the numbers of tokens to predict (N,), at least 1 and at most P.

    The share refers to the whole length, including the ``special`` tokens [CLS] and [SEP], as in the published data.
    """
    lengths = maskable.sum(1) + special
    return np.clip(np.round(lengths * masked_lm_prob).astype(np.int64), 1, max_predictions)


def hide(
    input_ids: np.ndarray, chosen: np.ndarray, mask_id: int, ordinary_ids: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return ids (N, S) in which 80 % of the chosen ones are [MASK], 10 % an ordinary id, and 10 % unchanged."""
    rows, columns = np.nonzero(chosen)
    draw = rng.random(rows.shape)
    randoms = ordinary_ids[rng.integers(0, len(ordinary_ids), rows.shape)]
    original = input_ids[rows, columns]
    hidden = np.where(draw < MASK_SHARE, mask_id, np.where(draw < MASK_SHARE + RANDOM_SHARE, randoms, original))
    out = input_ids.copy()
    out[rows, columns] = hidden
    return out


def predictions(input_ids: np.ndarray, chosen: np.ndarray, max_predictions: int) -> dict[str, np.ndarray]:
    """Return positions, original ids and weights of the chosen tokens, each (N, P) and padded with zeros."""
    rows, columns = np.nonzero(chosen)  # row by row, columns ascending
    firsts = np.concatenate([[0], np.cumsum(chosen.sum(1))[:-1]])
    slots = np.arange(len(rows)) - firsts[rows]
    shape = (chosen.shape[0], max_predictions)
    positions, ids, weights = np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    positions[rows, slots] = columns
    ids[rows, slots] = input_ids[rows, columns]
    weights[rows, slots] = 1.0
    return {"masked_lm_positions": positions, "masked_lm_ids": ids, "masked_lm_weights": weights}


def context_free_optimum(counts: np.ndarray, ordinary_ids: np.ndarray) -> ContextFree:
    """Return the best results of predictions from the piece at a masked position alone.

    Such a position shows [MASK] (80 %), a random ordinary piece v (10 %), or its own piece (10 %). Where it shows v, by
    Bayes' rule its piece is t with a probability proportional to p(t) · (0.1 · r(v) + 0.1 · [t = v]); p is the
    distribution of the pieces in the text, r that of random ones.

    ``counts`` (V,) says how often each piece occurs; ``ordinary_ids`` replace others, all equally often.
    """
    ordinary = np.zeros(len(counts), bool)
    ordinary[ordinary_ids] = True
    p = counts / counts.sum()
    entropy = float(-(p * _log(p)).sum())
    random = ordinary * (RANDOM_SHARE / max(len(ordinary_ids), 1))  # (V,) of a position to show v by chance
    kept = 1 - MASK_SHARE - RANDOM_SHARE
    shown = random + kept * p  # (V,) of a position to show v at all
    own = p * (random + kept)  # (V,) of a position to have v and show it
    by_others = random * (entropy + p * _log(p)) - random * (1 - p) * (_log(random) - _log(shown))
    by_itself = -own * (_log(own) - _log(shown))
    loss = MASK_SHARE * entropy + float((by_others + by_itself).sum())
    first, second = np.argsort(p)[[-1, -2]]
    most_frequent_other = np.where(np.arange(len(p)) == first, p[second], p[first])
    accuracy = MASK_SHARE * p[first] + float(np.maximum(own, random * most_frequent_other).sum())
    return ContextFree(loss, float(accuracy))


def _log(values: np.ndarray) -> np.ndarray:
    """Return logarithms, 0 for values of 0, whose terms do not count."""
    return np.log(np.where(values > 0, values, 1.0))
