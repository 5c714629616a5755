"""Sequences with Wikipedia's lengths, padded and in packs: random tokens, 15 % of them masked.

S tokens of a row · R sequences · M packs
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_utils.packing import plan_packing
from data_utils.packing.merge import pack_arrays
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import packed_pretraining_features, pretraining_features

HISTOGRAM = Path(__file__).resolve().parent / "data" / "wikipedia_length_histogram.json"
PREDICTIONS = {128: 20, 512: 76}  # of one sequence at most, as published
MASKED_LM_PROB = 0.15
SHORTEST = 5  # tokens; so short is no sequence of the histogram


class Samples(NamedTuple):
    """The same kind of sequences twice.

    Attributes:
        padded: one sequence a row.
        packed: several sequences a row.
        packing_factor: sequences in a pack on average, over the whole histogram.
        efficiency: share of real tokens in packs, over the whole histogram.
    """

    padded: ArrayReader
    packed: ArrayReader
    packing_factor: float
    efficiency: float


def histogram(max_seq_length: int) -> np.ndarray:
    """Number of Wikipedia sequences of 1, 2, … tokens; those that are longer count as cut to ``max_seq_length``."""
    counts = np.array(json.loads(HISTOGRAM.read_text(encoding="utf-8"))["counts"])
    return np.append(counts[: max_seq_length - 1], counts[max_seq_length - 1 :].sum())


def make_samples(
    max_seq_length: int, max_sequences_per_pack: int, algorithm: str, rows: int, vocab_size: int, seed: int = 1984
) -> Samples:
    """Rows of both kinds.

    Args:
        max_seq_length: S, of ``PREDICTIONS``.
        max_sequences_per_pack, algorithm: see :func:`data_utils.packing.plan_packing`.
        rows: padded sequences, and packs.
        vocab_size: of the model.
        seed: of lengths and tokens.
    """
    random = np.random.default_rng(seed)
    counts = histogram(max_seq_length)
    plan = plan_packing(counts, max_seq_length, max_sequences_per_pack, algorithm)
    chosen = [plan.packs[kind] for kind in spread(np.asarray(plan.repeats), rows, random)]
    places = np.cumsum([0, *map(len, chosen)])
    in_packs = random_sequences(np.concatenate(chosen), max_seq_length, vocab_size, random)
    of_packs = [range(begin, end) for begin, end in pairwise(places)]
    needed = max(int(masked_tokens(np.array(pack), max_seq_length).sum()) for pack in plan.packs)
    room = max(needed, PREDICTIONS[max_seq_length] + max_sequences_per_pack)  # as data_utils.packing makes it
    packed = pack_arrays(in_packs, of_packs, max_seq_length, room, max_sequences_per_pack)
    alone = random_sequences(1 + spread(counts, rows, random), max_seq_length, vocab_size, random)
    predictions = PREDICTIONS[max_seq_length]
    return Samples(
        ArrayReader(pretraining_features(max_seq_length, predictions, vocab_size), alone),
        ArrayReader(packed_pretraining_features(max_seq_length, room, max_sequences_per_pack, vocab_size), packed),
        plan.packing_factor,
        plan.efficiency,
    )


def spread(counts: np.ndarray, number: int, random: np.random.Generator) -> np.ndarray:
    """``number`` indices in proportion to their counts, in random order.

    Taken at equal distances of the cumulated counts, so that their mean is that of the whole histogram.
    """
    ends = np.cumsum(counts)
    points = (np.arange(number) + 0.5) / number * ends[-1]
    return random.permutation(np.searchsorted(ends, points, side="right"))


def masked_tokens(lengths: np.ndarray, max_seq_length: int) -> np.ndarray:
    """How many tokens of sequences are masked, as data preparation does it."""
    return np.clip(np.round(lengths * MASKED_LM_PROB), 1, PREDICTIONS[max_seq_length]).astype(np.int64)


def random_sequences(
    lengths: np.ndarray, max_seq_length: int, vocab_size: int, random: np.random.Generator
) -> dict[str, np.ndarray]:
    """Pre-training samples of these lengths, padded: name → (R, …)."""
    assert lengths.min() >= SHORTEST
    count, columns = len(lengths), np.arange(max_seq_length)
    mask = (columns < lengths[:, None]).astype(np.int32)
    places = np.where(mask, random.random(mask.shape), 2.0).argsort(axis=1)[:, : PREDICTIONS[max_seq_length]]
    real = np.arange(places.shape[1]) < masked_tokens(lengths, max_seq_length)[:, None]
    return {
        "input_ids": random.integers(0, vocab_size, mask.shape) * mask,
        "input_mask": mask,
        "segment_ids": (columns >= lengths[:, None] // 2) * mask,
        "masked_lm_positions": places * real,
        "masked_lm_ids": random.integers(0, vocab_size, places.shape) * real,
        "masked_lm_weights": real.astype(np.float32),
        "next_sentence_labels": random.integers(0, 2, (count, 1)),
    }
