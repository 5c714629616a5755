"""Word vectors equal a plain computation by the formulas, and tell which word pieces have the same neighbours."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from data_utils import word_vectors
from data_utils.records.order import samples_at
from data_utils.word_vectors import count_neighbours, decompose, original_tokens, positive_information

VOCABULARY = 12


class Rows:
    """Rows that are held in memory."""

    def __init__(self, tokens: np.ndarray, sequences: np.ndarray):
        self.tokens, self.sequences = tokens, sequences  # (N, S)
        self.count = len(tokens)

    def read(self, positions: np.ndarray) -> dict[str, np.ndarray]:
        tokens = self.tokens[positions]
        masked = np.tile([[0, 1]], (len(tokens), 1))  # the second one is not real
        hidden = tokens.copy()
        hidden[:, 0] = 3
        return {
            "input_ids": hidden,
            "input_mask": self.sequences[positions],
            "masked_lm_positions": masked,
            "masked_lm_ids": np.stack([tokens[:, 0], np.zeros(len(tokens), int)], axis=1),
            "masked_lm_weights": np.tile(np.array([[1, 0]], np.float32), (len(tokens), 1)),
        }


@pytest.fixture
def tokens() -> np.ndarray:
    return np.random.default_rng(5).integers(0, VOCABULARY - 2, (40, 9))  # the last two pieces do not occur


@pytest.fixture
def sequences() -> np.ndarray:
    """Return rows of one sequence, of one and padding, and of two in a pack."""
    sequences = np.ones((40, 9), np.int32)
    sequences[::3, 6:] = 0
    sequences[1::3, 4:] = 2
    return sequences


def test_masked_tokens_are_restored(tokens: np.ndarray, sequences: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(tokens, sequences)
    monkeypatch.setattr(word_vectors, "ROWS_AT_ONCE", 7)
    parts = samples_at(seed=3, start=0, count=6, n=6)
    order = [row for part in parts for row in range(7 * part, min(7 * part + 7, len(tokens)))]
    np.testing.assert_array_equal(original_tokens(rows, 3, tokens.size), (tokens[order], sequences[order]))
    first = original_tokens(rows, 3, 100)[0]
    assert 100 <= first.size < 100 + 7 * 9
    np.testing.assert_array_equal(first, tokens[order[: len(first)]])


def test_counts_and_information_are_those_of_a_plain_loop(tokens: np.ndarray, sequences: np.ndarray) -> None:
    contexts = np.array([4, 0, 7])
    counted: Counter[tuple[int, int]] = Counter()
    for row, sequence in zip(tokens, sequences, strict=True):
        for here in range(len(row)):
            for there in range(len(row)):
                if 0 < abs(here - there) <= word_vectors.WINDOW and sequence[here] == sequence[there] > 0:
                    counted[row[here], row[there]] += 1 / abs(here - there)
    expected = np.array([[counted[piece, context] for context in contexts] for piece in range(VOCABULARY)])
    counts = count_neighbours(tokens, sequences, contexts, VOCABULARY)
    np.testing.assert_allclose(counts, expected, rtol=1e-6)

    smoothed = [sum(column) ** 0.75 for column in expected.T]
    for piece, row in enumerate(positive_information(counts)):
        for context, value in enumerate(row):
            joint = expected[piece, context] / max(sum(expected[piece]), 1e-30)
            ratio = joint / (smoothed[context] / sum(smoothed))
            assert value == pytest.approx(max(math.log(ratio), 0) if ratio else 0, abs=1e-5)


def test_decomposition_is_the_exact_one_up_to_rotation() -> None:
    rng = np.random.default_rng(2)
    matrix = rng.standard_normal((60, 5)) @ np.diag([9, 7, 5, 3, 1]) @ rng.standard_normal((5, 50))
    left, values, _ = np.linalg.svd(matrix)
    exact = left[:, :4] * np.sqrt(values[:4])
    vectors = decompose(matrix.astype(np.float32), 4, rng)
    np.testing.assert_allclose(vectors @ vectors.T, exact @ exact.T, rtol=1e-3, atol=1e-3)


def test_pieces_with_the_same_neighbours_have_similar_vectors_of_one_length() -> None:
    rng = np.random.default_rng(3)
    first = [rng.integers(0, 3, 300), np.full(300, 6)]  # pieces 0 to 2 are next to 6, pieces 3 to 5 next to 7
    second = [rng.integers(3, 6, 300), np.full(300, 7)]
    tokens = np.concatenate([np.stack(first, axis=1), np.stack(second, axis=1)])
    vectors = word_vectors.word_vectors(Rows(tokens, np.ones_like(tokens)), VOCABULARY, size=16, seed=1)
    assert vectors.shape == (VOCABULARY, 16) and vectors.dtype == np.float32
    np.testing.assert_allclose((vectors**2).mean(axis=1), 1, rtol=1e-5)
    cosine = vectors @ vectors.T / 16
    assert min(cosine[:3, :3].min(), cosine[3:6, 3:6].min()) > 0.9
    assert cosine[:3, 3:6].max() < 0.1
    np.testing.assert_array_equal(
        vectors, word_vectors.word_vectors(Rows(tokens, np.ones_like(tokens)), VOCABULARY, size=16, seed=1)
    )
