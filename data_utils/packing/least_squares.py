"""Non-negative least squares over columns that nobody lists: the active-set method of Lawson and Hanson.

Columns are packs: entry i of a pack's column is the number of its sequences of length i + 1, times that length's own
weight. Wanted are the packs, and how often each, whose weighted sum comes nearest to a target. The method repeats: ask
for packs along which the residual falls (here the knapsack answers); take them in; solve for those in use; and where
one would be used less than never, walk there only until the first is used exactly never, and drop it.

Shapes: S lengths, and as many places for columns in use, which are linearly independent.

Source: Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter 23.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Optional, Tuple

import numpy as np
from scipy.linalg.blas import dger
from threadpoolctl import threadpool_limits

Pack = Tuple[int, ...]

_SMALLEST_GRADIENT = 1e-9  # relative to the target's greatest entry, which is scaled to 1
_DEPENDENT = 1e-8  # squared distance from the span of those in use, relative to a column's own square
_EXACT = 1e-13
_INEXACT = 1e-11
_TINY = 1e-300
_ROUNDS_PER_LENGTH = 20  # a limit that is never reached; about one round in three lengths is needed


class ColumnsInUse:
    """The columns in use, and the inverse of their Gram matrix, kept up to date as columns come and go.

    Args:
        weights: ``(S,)`` of the lengths.
        target: ``(S,)``, weighted.

    Attributes:
        times: ``(S,)``, how often each place's column is used; 0 for free places.
    """

    def __init__(self, weights: np.ndarray, target: np.ndarray) -> None:
        size = weights.size
        self.times = np.zeros(size)
        self._weights, self._target = weights, target
        self._columns = np.zeros((size, size), order="F")
        self._inverse = np.zeros((size, size), order="F")
        self._taken = np.zeros(size, bool)
        self._packs: List[Optional[Pack]] = [None] * size

    def residual(self) -> np.ndarray:
        """Target less what the columns in use make of it, ``(S,)``."""
        return self._target - self._columns @ self.times

    def solution(self) -> Dict[Pack, float]:
        """The packs in use and how often each."""
        return {pack: times for pack, times in zip(self._packs, self.times.tolist()) if pack is not None}

    def take_in(self, pack: Pack) -> bool:
        """Adds a column, used 0 times; not if those in use span it already."""
        place = int(np.argmin(self._taken))
        if self._taken[place]:
            return False
        column = np.zeros(self._weights.size)
        for length in pack:
            column[length - 1] += self._weights[length - 1]
        share = self._inverse @ (column @ self._columns)
        share += self._inverse @ ((column - self._columns @ share) @ self._columns)  # against rounding
        apart = column - self._columns @ share
        distance = apart @ apart
        if distance < _DEPENDENT * (column @ column):
            return False
        share[place] = -1.0  # inverse of a bordered matrix, as one update of rank 1
        self._inverse = dger(1 / distance, share, share, a=self._inverse, overwrite_a=1)
        self._columns[:, place] = column
        self._taken[place] = True
        self._packs[place] = pack
        return True

    def settle(self) -> None:
        """Moves to the least-squares solution of the columns in use, dropping those that would become negative."""
        while True:
            wanted = self._least_squares()
            negative = self._taken & (wanted <= 0)
            if not negative.any():
                self.times = wanted
                return
            step = np.full(wanted.size, np.inf)
            step[negative] = self.times[negative] / np.maximum(self.times - wanted, _TINY)[negative]
            first = step.min()
            self.times += first * (wanted - self.times)
            for place in np.flatnonzero(step <= first).tolist():
                self._drop(place)

    def _drop(self, place: int) -> None:
        shares = self._inverse[:, place].copy()
        self._inverse = dger(-1 / shares[place], shares, shares, a=self._inverse, overwrite_a=1)
        self._inverse[place] = self._inverse[:, place] = self._columns[:, place] = self.times[place] = 0.0
        self._taken[place] = False
        self._packs[place] = None

    def _least_squares(self) -> np.ndarray:
        """Solves for the columns in use, and refines; the inverse is made anew where it has become inexact."""
        for fresh in (False, True):
            if fresh:
                taken = np.flatnonzero(self._taken)
                columns = self._columns[:, taken]
                self._inverse[:] = 0.0
                self._inverse[np.ix_(taken, taken)] = np.linalg.inv(columns.T @ columns)
            times = np.zeros(self._target.size)
            for _ in range(4):
                gradient = (self._target - self._columns @ times) @ self._columns
                if np.abs(gradient).max() < _EXACT:
                    return times
                times += self._inverse @ gradient
            if np.abs(gradient).max() < _INEXACT:
                break
        return times


def nonnegative_least_squares(
    weights: np.ndarray,
    target: np.ndarray,
    descents: Callable[[np.ndarray, float], Iterable[Pack]],
) -> Dict[Pack, float]:
    """How often to use which packs, to come nearest to a target.

    Args:
        weights: ``(S,)``, what a difference at each length counts.
        target: ``(S,)``, sequences of each length, not weighted.
        descents: given the gradient of every length, ``(S,)``, and a threshold: packs along which the residual falls
            by more than the threshold, the best first; none where no pack does.

    Returns:
        packs with positive numbers of uses.
    """
    scale = float(target.max(initial=0.0))
    if scale == 0:
        return {}
    in_use = ColumnsInUse(weights, weights * target / scale)
    # The matrices are small: more threads cost more than they give, and would sum in another order on another machine.
    with threadpool_limits(1, user_api="blas"):
        for _ in range(_ROUNDS_PER_LENGTH * target.size):
            progress = False
            for pack in descents(weights * in_use.residual(), _SMALLEST_GRADIENT):
                if in_use.take_in(pack):
                    progress = True
                elif progress:
                    break  # what has just been taken in spans it: time to settle
            if not progress:
                break
            in_use.settle()
    return {pack: times * scale for pack, times in in_use.solution().items()}
