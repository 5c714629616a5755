"""The order of samples as a function of (seed, epoch, position), without state.

Each epoch is a permutation of the samples, computed one position at a time: a Feistel network over pairs (left, right)
whose ranges multiply to little more than the number of samples (Black and Rogaway, "Ciphers with arbitrary finite
domains", 2002, generalised Feistel construction), applied again while the result lies beyond the last sample. To resume
at any position, a run therefore needs nothing but that position.
"""

from __future__ import annotations

import math
from typing import Sequence

import numpy as np

_ROUNDS = 8
_MASK = 0xFFFFFFFFFFFFFFFF
_STEP = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio


def samples_at(seed: int, start: int, count: int, n: int, shuffle: bool = True) -> np.ndarray:
    """Return the samples at ``count`` consecutive positions, epoch after epoch without a gap.

    Args:
        start: first position in the whole run; positions from ``n`` on lie in later epochs.
        n: samples in an epoch, at least 1.

    Returns:
        int64 ``(count,)``, samples in [0, n).

    Example:
        >>> samples_at(seed=1, start=2, count=4, n=3, shuffle=False)
        array([2, 0, 1, 2])
    """
    assert n > 0 and start >= 0 and count >= 0
    epoch, offset = np.divmod(np.arange(start, start + count, dtype=np.int64), n)
    if not shuffle or count == 0:
        return offset
    return permute(offset, n, seed, epoch[:1] if epoch[0] == epoch[-1] else epoch)


def select_batch(update: int, skipped: Sequence[int]) -> int:
    """Return the number of the global batch that an update consumes, given the skipped ones in ascending order.

    Example:
        >>> [select_batch(update, [1, 2]) for update in range(3)]
        [0, 3, 4]
    """
    batch = update
    for left_out in skipped:
        if left_out > batch:
            break
        batch += 1
    return batch


def permute(offset: np.ndarray, n: int, seed: int, epoch: np.ndarray) -> np.ndarray:
    """Return the samples at some offsets in [0, n) of the permutation of (seed, epoch), int64 ``(count,)``.

    The ``epoch`` is that of each offset, or ``(1,)`` of all.
    """
    left_range = math.isqrt(n - 1) + 1
    right_range = -(-n // left_range)
    keys = _mix(_mix(np.full(1, seed & _MASK, np.uint64)) + epoch.astype(np.uint64) * np.uint64(_STEP))
    image = _feistel_network(offset.astype(np.uint64), left_range, right_range, keys)
    while True:  # Cycle walking: the network permutes a range larger than n, and each cycle returns below n.
        beyond = np.flatnonzero(image >= np.uint64(n))
        if not beyond.size:
            return image.astype(np.int64)
        image[beyond] = _feistel_network(
            image[beyond], left_range, right_range, keys[beyond] if keys.size > 1 else keys
        )


def _feistel_network(offset: np.ndarray, left_range: int, right_range: int, keys: np.ndarray) -> np.ndarray:
    a, b = np.uint64(left_range), np.uint64(right_range)
    left, right = offset // b, offset % b
    for number in range(0, _ROUNDS, 2):
        # The hash is reduced before the sum, so that the sum modulo the range is a bijection for every key.
        left = (left + _mix(right + keys * np.uint64(2 * number + 1)) % a) % a
        right = (right + _mix(left + keys * np.uint64(2 * number + 3)) % b) % b
    return left * b + right


def _mix(value: np.ndarray) -> np.ndarray:
    """Apply a bijection of 64-bit words that spreads every bit over all others (finaliser of SplitMix64)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
