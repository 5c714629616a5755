"""Rows of different lengths in one flat array."""

from __future__ import annotations

import numpy as np


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """(N,) where each row begins, the rows lying one behind the other."""
    return np.cumsum(lengths) - lengths


def take_rows(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Rows of a flat array, one behind the other.

    Args:
        values: (T,) all rows.
        starts, lengths: (M,) of the rows wanted, in any order; a row may be wanted again.

    Returns:
        Sum of ``lengths`` values.

    Example:
        >>> take_rows(np.array([5, 6, 7, 8]), np.array([2, 0]), np.array([2, 1])).tolist()
        [7, 8, 5]
    """
    lengths = lengths.astype(np.int64)
    shift = np.repeat(starts - starts_of(lengths), lengths)
    return values[shift + np.arange(shift.size)]
