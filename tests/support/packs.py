"""Sequences of many lengths, the same in packs, and the outputs that belong to each sequence of a pack."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence

import numpy as np

from data_utils.packing.merge import pack_arrays
from data_utils.records.features import packed_pretraining_features
from model.architecture import Architecture
from tests.support.bert_pairs import Arrays, Pair, on_cpu, pair_of, source_with_random_weights

LENGTH, MASKED, SEQUENCES = 48, 16, 4  # of a pack
INPUTS = (
    *("input_ids", "input_mask", "segment_ids", "position_ids"),
    *("masked_lm_positions", "next_sentence_positions"),
)


def sequences(a: Architecture, lengths: Sequence[int], masked: int = 4, seed: int = 0) -> Arrays:
    """Return pre-training samples of these lengths, padded to a pack's length, with 1 to ``masked`` masked tokens."""
    random = np.random.default_rng(seed)
    count, columns = len(lengths), np.arange(LENGTH)
    mask = (columns < np.array(lengths)[:, None]).astype("int32")
    positions = np.zeros((count, masked), "int32")
    weights = np.zeros((count, masked), "float32")
    for row, length in enumerate(lengths):
        chosen = np.sort(random.permutation(length)[: random.integers(1, min(masked, length) + 1)])
        positions[row, : len(chosen)], weights[row, : len(chosen)] = chosen, 1
    ends = random.integers(1, np.array(lengths))[:, None]  # of the first sentence
    return {
        "input_ids": random.integers(1, a.vocab_size, mask.shape).astype("int32") * mask,
        "input_mask": mask,
        "segment_ids": (columns >= ends).astype("int32") * mask,
        "masked_lm_positions": positions,
        "masked_lm_ids": random.integers(0, a.vocab_size, positions.shape).astype("int32"),
        "masked_lm_weights": weights,
        "next_sentence_labels": random.integers(0, 2, (count, 1)).astype("int32"),
    }


def packs_in_order(lengths: Sequence[int], pack: int = LENGTH, most: int = SEQUENCES) -> List[List[int]]:
    """Return rows of these lengths in packs, each with as many of the next rows as fit."""
    packs, room = [[]], pack
    for row, length in enumerate(lengths):
        if length > room or len(packs[-1]) == most:
            packs, room = [*packs, []], pack
        packs[-1].append(row)
        room -= length
    return packs


def in_packs(data: Arrays, packs: Sequence[Sequence[int]]) -> Arrays:
    return pack_arrays(data, packs, LENGTH, MASKED, SEQUENCES)


def packed_model(a: Architecture, replace: bool = True, **platform: Any) -> Pair:
    """Return Hugging Face's model with random weights, and the model for packs with the same weights."""
    shapes = packed_pretraining_features(LENGTH, MASKED, SEQUENCES, 1).shapes
    return pair_of(source_with_random_weights(a), a, on_cpu(**platform), shapes=shapes, replace=replace)


def run(model: Callable[[Arrays], Any], data: Arrays) -> Arrays:
    return {name: values.numpy() for name, values in model({name: data[name] for name in INPUTS}).items()}


def of_sequence(outputs: Arrays, data: Arrays, pack: int, slot: int) -> Arrays:
    """Return a pack model's scores for one sequence: of its masked words, in order, and of its next sentence."""
    real = data["masked_lm_weights"][pack] > 0
    number = data["input_mask"][pack][data["masked_lm_positions"][pack]]
    return {
        "masked_lm": outputs["masked_lm"][pack][real & (number == slot + 1)],
        "next_sentence": outputs["next_sentence"][pack][slot],
    }
