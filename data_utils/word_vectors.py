"""Word vectors from the counts of neighbouring word pieces, as initial word embeddings of a BERT.

A BERT that starts from random embeddings first learns, from few masked tokens, which pieces are alike. Counts over the
text give that at once: vectors from positive pointwise mutual information (PMI), by Levy, Goldberg and Dagan 2015
(TACL 3, section 3), with a smoothed distribution of contexts and the square roots of the singular values.

N rows · S tokens of a row · V word pieces · K contexts: the most frequent pieces · H size of a vector
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from data_utils.records.order import samples_at

if TYPE_CHECKING:
    from data_utils.records.pipeline import SampleReader

ROWS_AT_ONCE = 2048  # neighbours in the data set, because many reads at random positions of a disk take minutes
TOKENS = 16_000_000  # that are counted at most
CELLS = 1 << 26  # V × K at most; the table of counts and what is computed from it take up to 1.5 GB
WINDOW = 4  # neighbours on each side; the neighbour at distance d counts 1/d
SMOOTHING = 0.75  # exponent of the frequencies of contexts
OVERSAMPLING, POWER_ITERATIONS = 32, 2  # of the randomized decomposition


def word_vectors(rows: SampleReader, vocab_size: int, size: int, seed: int) -> np.ndarray:
    """Return a vector of each word piece, from random parts of a data set.

    Args:
        seed: seed of the choice of parts, of the decomposition, and of the vectors of pieces that do not occur.

    Returns:
        float32 (V, H), each row of length √H, so that the elements have a root mean square of 1.
    """
    tokens, sequences = original_tokens(rows, seed, TOKENS)
    rng = np.random.default_rng(seed)
    frequencies = np.bincount(tokens[sequences > 0], minlength=vocab_size)  # (V,)
    contexts = np.argsort(-frequencies, kind="stable")[: CELLS // vocab_size]  # (K,)
    information = positive_information(count_neighbours(tokens, sequences, contexts, vocab_size))
    vectors = decompose(information, min(size, len(contexts)), rng)  # (V, min(H, K))
    # A random rotation spreads the information evenly over the elements, among which the heads are divided.
    rotation = np.linalg.qr(rng.standard_normal((size, size)))[0][: vectors.shape[1]]
    vectors = vectors @ rotation  # (V, H)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = np.where(lengths > 0, vectors, rng.standard_normal((vocab_size, size)))
    vectors *= size**0.5 / np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32)


def original_tokens(rows: SampleReader, seed: int, enough: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of random parts of a data set before they were masked, until there are ``enough``.

    Returns:
        int32 (N, S), and the number of each token's sequence in its row, from 1 on, 0 for padding: uint16 (N, S).
    """
    parts: list[np.ndarray] = []
    sequences: list[np.ndarray] = []
    count = -(-rows.count // ROWS_AT_ONCE)
    for part in samples_at(seed, 0, count, count).tolist():
        begin = part * ROWS_AT_ONCE
        batch = rows.read(np.arange(begin, min(begin + ROWS_AT_ONCE, rows.count)))
        tokens = batch["input_ids"]  # (N, S)
        row, masked = np.nonzero(batch["masked_lm_weights"])
        tokens[row, batch["masked_lm_positions"][row, masked]] = batch["masked_lm_ids"][row, masked]
        parts.append(tokens)
        sequences.append(batch["input_mask"].astype(np.uint16))
        if sum(part.size for part in parts) >= enough:
            break
    return np.concatenate(parts), np.concatenate(sequences)


def count_neighbours(tokens: np.ndarray, sequences: np.ndarray, contexts: np.ndarray, vocab_size: int) -> np.ndarray:
    """Return how often each piece has each context within ``WINDOW`` tokens of its sequence, near ones counting more.

    Tokens and sequences are (N, S), contexts (K,) pieces; the result is float32 (V, K).
    """
    columns = np.full(vocab_size, -1)
    columns[contexts] = np.arange(len(contexts))
    counts = np.zeros(vocab_size * len(contexts), np.float32)
    for distance in range(1, min(WINDOW, tokens.shape[1] - 1) + 1):
        left, right = tokens[:, :-distance], tokens[:, distance:]
        together = (sequences[:, :-distance] == sequences[:, distance:]) & (sequences[:, distance:] > 0)
        for piece, context in ((left, right), (right, left)):
            column = columns[context]
            real = together & (column >= 0)
            cells = piece[real].astype(np.int64) * len(contexts) + column[real]
            counts += np.bincount(cells, minlength=len(counts)).astype(np.float32) / distance
    return counts.reshape(vocab_size, len(contexts))


def positive_information(counts: np.ndarray) -> np.ndarray:
    """Return log(P(piece, context) / (P(piece) P(context))), or 0 where that is negative.

    P(context) is proportional to its count to the power ``SMOOTHING``.

    The counts (V, K) are overwritten with the result, which saves the memory of a second table.
    """
    of_pieces = counts.sum(axis=1, keepdims=True)  # (V, 1)
    of_contexts = counts.sum(axis=0) ** SMOOTHING  # (K,)
    share = of_contexts / of_contexts.sum()
    with np.errstate(divide="ignore", invalid="ignore"):  # log(0), and pieces and contexts without neighbours
        counts /= of_pieces
        counts /= share
        np.log(counts, out=counts)
    return np.nan_to_num(np.maximum(counts, 0, out=counts), copy=False, nan=0.0)


def decompose(matrix: np.ndarray, rank: int, rng: np.random.Generator) -> np.ndarray:
    """Return the left singular vectors of a matrix times the square roots of its largest singular values.

    Source: Halko, Martinsson and Tropp 2011 (SIAM Review 53), algorithms 4.4 and 5.1.

    The matrix is (V, K), the result (V, rank).
    """
    columns = min(rank + OVERSAMPLING, *matrix.shape)
    basis = matrix @ rng.standard_normal((matrix.shape[1], columns), dtype=np.float32)  # (V, columns)
    for _ in range(POWER_ITERATIONS):
        basis = matrix @ (matrix.T @ np.linalg.qr(basis)[0])
    basis = np.linalg.qr(basis)[0]
    left, values, _ = np.linalg.svd(basis.T @ matrix, full_matrices=False)
    return (basis @ left[:, :rank]) * np.sqrt(values[:rank])
