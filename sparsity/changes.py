"""How a pattern changes: small blocks go, and as many others come.

SET (Mocanu et al. 2018, arXiv 1707.04780) draws those that come at random; RigL (Evci et al. 2020, arXiv 1911.11134)
takes those whose gradient is largest. Both keep the number of blocks. Norms of blocks in place of single magnitudes:
Dietrich et al. 2021 (arXiv 2108.06277), where L1 norms did best.

R rows of blocks · C columns of blocks · n blocks that exist
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparsity.pattern import Grid, shuffled

NEW = -1


class Change(NamedTuple):
    """A pattern and where its blocks come from.

    Attributes:
        pattern: (n,) int32, ascending.
        sources: (n,) place of each block in the pattern before; ``NEW`` where it was not in it or was dropped.
    """

    pattern: np.ndarray
    sources: np.ndarray

    @property
    def grown(self) -> int:
        """Number of new blocks."""
        return int((self.sources == NEW).sum())


def set_change(pattern: np.ndarray, norms: np.ndarray, fraction: float, grid: Grid, *key: int) -> Change:
    """Drop the share ``fraction`` of the blocks that has the smallest norms; draw as many that did not exist.

    Args:
        pattern: (n,) ascending.
        norms: (n,) of the blocks' weights.
        fraction: rounded down to whole blocks, and to as many as are absent.
        key: what the draw is a function of: seed, update, layer.
    """
    absent = np.setdiff1d(np.arange(grid.size, dtype=np.int64), pattern, assume_unique=True)
    count = min(_number(fraction, len(pattern)), len(absent))
    grown = absent[shuffled(len(absent), *key)[:count]]
    return _changed(pattern, _kept(norms, count), grown)


def rigl_change(
    pattern: np.ndarray, norms: np.ndarray, gradient_norms: np.ndarray, fraction: float, grid: Grid
) -> Change:
    """Drop as :func:`set_change`; of all blocks that do not exist then, grow those with the largest gradient.

    A block that was just dropped may come back, at zero, if its gradient is large.

    Args:
        pattern: (n,) ascending.
        norms: (n,) of the blocks' weights.
        gradient_norms: (R · C,) of the dense gradient's blocks, by their numbers.
    """
    count = min(_number(fraction, len(pattern)), grid.size - len(pattern))
    kept = _kept(norms, count)
    scores = np.array(gradient_norms, np.float64)
    scores[pattern[kept]] = -np.inf
    grown = np.argsort(-scores, kind="stable")[:count]
    return _changed(pattern, kept, grown)


def moved(values: np.ndarray, change: Change) -> np.ndarray:
    """Weights or moments (n, …) in the places of the new pattern, zeros where a block is new."""
    taken = values[np.maximum(change.sources, 0)]
    taken[change.sources == NEW] = 0
    return taken


def _number(fraction: float, count: int) -> int:
    return int(fraction * count)


def _kept(norms: np.ndarray, dropped: int) -> np.ndarray:
    """Places of the blocks that stay, ascending; of equal norms the first go first."""
    return np.sort(np.argsort(norms, kind="stable")[dropped:])


def _changed(pattern: np.ndarray, kept: np.ndarray, grown: np.ndarray) -> Change:
    numbers = np.concatenate([pattern[kept], grown])
    sources = np.concatenate([kept, np.full(len(grown), NEW)])
    order = np.argsort(numbers, kind="stable")
    return Change(numbers[order].astype(np.int32), sources[order])
