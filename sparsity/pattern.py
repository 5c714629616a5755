"""A sparsity pattern: which blocks of a matrix exist.

A block has the number column · rows + row, so that ascending numbers go down each column of blocks in turn. A pattern
is the ascending numbers of the blocks that exist.

R rows of blocks · C columns of blocks · n blocks that exist
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Grid(NamedTuple):
    """The blocks that a matrix can have.

    Attributes:
        rows: of blocks.
        columns: of blocks.
    """

    rows: int
    columns: int

    @property
    def size(self) -> int:
        """Number of blocks in the dense matrix."""
        return self.rows * self.columns


def shuffled(size: int, *key: int) -> np.ndarray:
    """A permutation of 0 … ``size`` - 1 that is a function of ``key`` alone.

    It is made from the raw output of a counter-based generator (Philox, Salmon et al. 2011), which NumPy promises never
    to change, so that a run that goes on with another NumPy draws the same patterns.

    Args:
        key: whole numbers, 0 or more, such as seed, update and layer.
    """
    state = np.random.SeedSequence(key).generate_state(2, np.uint64)
    numbers = np.random.Philox(key=state).random_raw(size)
    return np.argsort(numbers, kind="stable")


def random_pattern(grid: Grid, count: int, *key: int) -> np.ndarray:
    """``count`` blocks, each set of them as likely as any other; (n,) int32, ascending."""
    return np.sort(shuffled(grid.size, *key)[:count]).astype(np.int32)


def check(pattern: np.ndarray, grid: Grid, count: int) -> None:
    """
    Raises:
        ValueError: the pattern has another number of blocks, one twice, one outside the grid, or is not ascending.
    """
    if pattern.shape != (count,):
        raise ValueError(f"the pattern has shape {pattern.shape} in place of ({count},)")
    if count and (pattern[0] < 0 or pattern[-1] >= grid.size):
        raise ValueError(f"the pattern has blocks outside {grid.rows} × {grid.columns}")
    if (np.diff(pattern) <= 0).any():
        raise ValueError("the pattern is not ascending, or has a block twice")
