"""Packs contain their sequences unchanged, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from data_utils.packing.merge import pack_arrays, sequence_lengths
from tests.support.pack_samples import LENGTH, PREDICTIONS, Sequence, comparable, sequence, split_pack


def one_pack(sequences: list[Sequence], *limits: int) -> Sequence:
    packed = pack_arrays(stacked(sequences), [range(len(sequences))], *limits)
    return {name: values[0] for name, values in packed.items()}


def stacked(sequences: list[Sequence]) -> Sequence:
    return {name: np.stack([sequence[name] for sequence in sequences]) for name in sequences[0]}


@pytest.mark.parametrize("seed", range(20))
def test_packs_contain_their_sequences_unchanged(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sequences = [sequence(1000 * seed + number) for number in range(12)]
    order = rng.permutation(12)
    bounds = np.sort(rng.choice(np.arange(1, 12), 4, replace=False))
    packs = [part.tolist() for part in np.split(order, bounds)]
    made = pack_arrays(stacked(sequences), packs, 12 * LENGTH, 12 * PREDICTIONS, 12)
    for row, pack in enumerate(packs):
        one = {name: values[row] for name, values in made.items()}
        assert split_pack(one) == [comparable(sequences[number]) for number in pack]


def test_a_pack_by_hand() -> None:
    two = {
        "input_ids": [[5, 6, 7, 0], [3, 4, 0, 0]],
        "input_mask": [[1, 1, 1, 0], [1, 1, 0, 0]],
        "segment_ids": [[0, 0, 1, 0], [0, 0, 1, 0]],
        "masked_lm_positions": [[1, 2], [1, 0]],
        "masked_lm_ids": [[9, 8], [7, 0]],
        "masked_lm_weights": [[1.0, 1.0], [0.5, 0.0]],
        "next_sentence_labels": [[1], [0]],
    }
    packed = pack_arrays({name: np.array(rows) for name, rows in two.items()}, [range(2)], 7, 4, 3)
    assert {name: values[0].tolist() for name, values in packed.items()} == {
        "input_ids": [5, 6, 7, 3, 4, 0, 0],
        "input_mask": [1, 1, 1, 2, 2, 0, 0],
        "segment_ids": [0, 0, 1, 0, 0, 0, 0],
        "position_ids": [0, 1, 2, 0, 1, 0, 0],
        "masked_lm_positions": [1, 2, 4, 0],
        "masked_lm_ids": [9, 8, 7, 0],
        "masked_lm_weights": [1.0, 1.0, 0.5, 0.0],
        "next_sentence_positions": [0, 3, 0],
        "next_sentence_labels": [1, 0, 0],
        "next_sentence_weights": [1.0, 1.0, 0.0],
    }


def test_a_sequence_may_be_in_several_packs() -> None:
    one, other = sequence(3), sequence(4)
    made = pack_arrays(stacked([one, other]), [[0, 1], [1], [1, 0]], 2 * LENGTH, 2 * PREDICTIONS, 2)
    result = [split_pack({name: values[row] for name, values in made.items()}) for row in range(3)]
    a, b = comparable(one), comparable(other)
    assert result == [[a, b], [b], [b, a]]


@pytest.mark.parametrize(
    ("limits", "part"), [((9, 8, 2), "10 tokens"), ((10, 8, 1), "2 sequences"), ((10, 0, 2), "masked")]
)
def test_sequences_that_do_not_fit_are_refused(limits: tuple[int, int, int], part: str) -> None:
    pair = [sequence(5, length=5), sequence(6, length=5)]
    assert one_pack(pair, 10, 8, 2)["input_mask"].tolist() == [1] * 5 + [2] * 5
    with pytest.raises(ValueError, match=part):
        one_pack(pair, *limits)


@pytest.mark.parametrize("mask", [[1, 0, 1], [0, 0, 0], [1, 2, 0]])
def test_an_invalid_mask_is_refused(mask: list[int]) -> None:
    with pytest.raises(ValueError, match="sequence 1 "):
        sequence_lengths(np.array([[1, 1, 0], mask]))
