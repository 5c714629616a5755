"""Chooses which blocks of a matrix exist, and changes the choice during training, using only NumPy.

A block has the number column · R + row, so ascending numbers run down one column of blocks after another. A pattern is
the ascending numbers of the blocks that exist.

SET (Mocanu et al. 2018, arXiv 1707.04780) drops the smallest blocks and grows random ones; RigL (Evci et al. 2020,
arXiv 1911.11134) grows those with the largest gradient. Both keep the number of blocks. Block norms instead of single
magnitudes follow Dietrich et al. 2021 (arXiv 2108.06277).

I inputs · O outputs · b block size · R = I/b rows of blocks · C = O/b columns of blocks · n blocks that exist
"""

from __future__ import annotations

import math
from typing import List, NamedTuple, Tuple

import numpy as np

NEW = -1  # source of a block that was not in the previous pattern


def all_blocks(matrix: np.ndarray, block_size: int) -> np.ndarray:
    """Cut a matrix (I, O) into its blocks (R · C, b, b), in the order of their numbers."""
    inputs, outputs = matrix.shape
    b = block_size
    cut = matrix.reshape(inputs // b, b, outputs // b, b)  # (R, b, C, b)
    return np.ascontiguousarray(cut.transpose(2, 0, 1, 3)).reshape(-1, b, b)


def dense_matrix(blocks: np.ndarray, positions: np.ndarray, shape: Tuple[int, int]) -> np.ndarray:
    """Return the matrix (I, O), zero in absent blocks, of ``blocks`` (n, b, b) at ``positions`` (n,)."""
    b = blocks.shape[-1]
    rows, columns = shape[0] // b, shape[1] // b
    whole = np.zeros((rows * columns, b, b), blocks.dtype)
    whole[positions] = blocks
    return np.ascontiguousarray(whole.reshape(columns, rows, b, b).transpose(1, 2, 0, 3)).reshape(shape)


def norms(blocks: np.ndarray) -> np.ndarray:
    """Return the L1 norm of each block (n, b, b) in float64, (n,).

    Dietrich et al. 2021 found that L1 norms prune blocks better than Euclidean norms or maxima.
    """
    return np.abs(blocks.astype(np.float64)).sum(axis=(1, 2))


def largest_blocks(block_norms: np.ndarray, count: int) -> np.ndarray:
    """Return the ascending numbers of the ``count`` blocks with the largest norms (R · C,); ties give the lower one."""
    return np.sort(np.argsort(-block_norms, kind="stable")[:count])


def shuffled(size: int, *key: int) -> np.ndarray:
    """Return a permutation of 0 … ``size`` - 1 that depends only on ``key``.

    It is made from the raw output of a counter-based generator (Philox, Salmon et al. 2011), which NumPy promises never
    to change. A run that is resumed with another NumPy therefore draws the same patterns.
    """
    state = np.random.SeedSequence(key).generate_state(2, np.uint64)
    numbers = np.random.Philox(key=state).random_raw(size)
    return np.argsort(numbers, kind="stable")


def random_pattern(size: int, count: int, *key: int) -> np.ndarray:
    """Draw ``count`` of ``size`` blocks uniformly by :func:`shuffled`; return (count,) int32, ascending."""
    return np.sort(shuffled(size, *key)[:count]).astype(np.int32)


class Change(NamedTuple):
    """A new pattern (n,), ascending, and the index (n,) of each block in the previous one; ``NEW`` if it is new."""

    pattern: np.ndarray
    sources: np.ndarray

    @property
    def grown(self) -> int:
        return int((self.sources == NEW).sum())


def set_change(pattern: np.ndarray, block_norms: np.ndarray, fraction: float, size: int, *key: int) -> Change:
    """Drop the share ``fraction`` of blocks with the smallest norms (n,), and draw the same number of absent ones.

    Whole blocks only, rounded down, and at most as many as are absent of all ``size``.
    """
    absent = np.setdiff1d(np.arange(size, dtype=np.int64), pattern, assume_unique=True)
    count = min(int(fraction * len(pattern)), len(absent))
    grown = absent[shuffled(len(absent), *key)[:count]]
    return _changed(pattern, _kept(block_norms, count), grown)


def rigl_change(pattern: np.ndarray, block_norms: np.ndarray, gradient_norms: np.ndarray, fraction: float) -> Change:
    """Drop like :func:`set_change`, and grow the absent blocks with the largest gradients.

    A block that was just dropped may return, starting at zero, if its gradient is large.

    Shapes are those of :func:`set_change`, and (R · C,) of the norms of the dense gradient.
    """
    count = min(int(fraction * len(pattern)), len(gradient_norms) - len(pattern))
    kept = _kept(block_norms, count)
    scores = np.array(gradient_norms, np.float64)
    scores[pattern[kept]] = -np.inf
    grown = np.argsort(-scores, kind="stable")[:count]
    return _changed(pattern, kept, grown)


def moved(values: np.ndarray, change: Change) -> np.ndarray:
    """Reorder weights or moments (n, …) for a new pattern; new blocks are zero."""
    taken = values[np.maximum(change.sources, 0)]
    taken[change.sources == NEW] = 0
    return taken


def _kept(block_norms: np.ndarray, dropped: int) -> np.ndarray:
    """Return the ascending indices of the blocks to keep; of equal norms the first are dropped first."""
    return np.sort(np.argsort(block_norms, kind="stable")[dropped:])


def _changed(pattern: np.ndarray, kept: np.ndarray, grown: np.ndarray) -> Change:
    numbers = np.concatenate([pattern[kept], grown])
    sources = np.concatenate([kept, np.full(len(grown), NEW)])
    order = np.argsort(numbers, kind="stable")
    return Change(numbers[order].astype(np.int32), sources[order])


def pattern_steps(updates: int, changes: int) -> List[int]:
    """Return the numbers of updates after which the pattern changes: evenly spaced, distinct, never the last one."""
    steps = {updates * number // (changes + 1) for number in range(1, changes + 1)}
    return sorted(steps - {0})


def prune_fraction(step: int, last: int, first_fraction: float) -> float:
    """Return the share of the blocks to replace at update t of T, α at first: α/2 · (1 + cos(π t / T)).

    Source: Evci et al. 2020, section 3; Dettmers & Zettlemoyer 2019. Dietrich et al. 2021 used α = 0.5 for BERT.
    """
    return first_fraction / 2 * (1 + math.cos(math.pi * min(step, last) / last))
