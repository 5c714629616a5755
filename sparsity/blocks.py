"""A matrix as blocks and back, in NumPy.

Blocks are numbered column · R + row, down each column of blocks in turn.

I inputs · O outputs · b block size · R = I/b rows of blocks · C = O/b columns of blocks · n blocks that exist
"""

from __future__ import annotations

from typing import Tuple

import numpy as np


def all_blocks(matrix: np.ndarray, block_size: int) -> np.ndarray:
    """The blocks of a matrix (I, O) by their numbers, (R · C, b, b)."""
    inputs, outputs = matrix.shape
    b = block_size
    cut = matrix.reshape(inputs // b, b, outputs // b, b)  # (R, b, C, b)
    return np.ascontiguousarray(cut.transpose(2, 0, 1, 3)).reshape(-1, b, b)


def dense_matrix(blocks: np.ndarray, positions: np.ndarray, shape: Tuple[int, int]) -> np.ndarray:
    """The matrix (I, O) that has zeros where no block exists.

    Args:
        blocks: (n, b, b).
        positions: (n,) their numbers.
        shape: of the matrix.
    """
    b = blocks.shape[-1]
    rows, columns = shape[0] // b, shape[1] // b
    whole = np.zeros((rows * columns, b, b), blocks.dtype)
    whole[positions] = blocks
    return np.ascontiguousarray(whole.reshape(columns, rows, b, b).transpose(1, 2, 0, 3)).reshape(shape)


def norms(blocks: np.ndarray) -> np.ndarray:
    """L1 norm of each block (n, b, b), the sum of its magnitudes, in float64.

    By which Dietrich et al. 2021 (arXiv 2108.06277) prune blocks: better than Euclidean norm and maximum there.
    """
    return np.abs(blocks.astype(np.float64)).sum(axis=(1, 2))


def largest_blocks(of_blocks: np.ndarray, count: int) -> np.ndarray:
    """Numbers of the ``count`` blocks of largest norm, of equals those of lower numbers; (n,) ascending.

    Args:
        of_blocks: (R · C,) norms by the blocks' numbers.
    """
    return np.sort(np.argsort(-of_blocks, kind="stable")[:count])
