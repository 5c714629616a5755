"""The linear program of packing: how often to use which pack, fractions allowed, so that packs are fewest.

    minimise Σ x_p   subject to   Σ a_lp x_p ≥ b_l for every length l,   x ≥ 0

with a_lp sequences of length l in pack p and b_l to be packed: the cutting-stock problem. There are too many packs to
list, so a few are solved for, and the duals y_l, what a sequence of each length costs at present, tell which pack is
missing: one whose sequences are together worth more than 1. A knapsack finds it, or proves that none is missing.

Two things make this quick. The first packs come from knapsacks around y_l = l/S, the duals of a perfect packing,
slightly disturbed, which gives many full packs of different composition. And packs are sought at duals drawn towards
the best known bound, which keeps them from jumping (Wentges, "Weighted Dantzig–Wolfe decomposition", 1997).

Shapes: S max_sequence_length, L lengths that occur, C packs considered.

Source: Gilmore and Gomory, "A linear programming approach to the cutting-stock problem", 1961.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csc_matrix

from data_utils.packing.knapsack import IMPOSSIBLE, BestPacks, best_packs

Pack = Tuple[int, ...]

_STARTS = 24
_DISTURBANCE = 0.02
_DRAWN = 0.3  # weight of the best known duals
_GAP = 1e-5  # relative to the bound: a solution so near to it is good enough
_GAIN = 1e-9  # worth above 1 that counts
_MAX_ROUNDS = 60
_UNIT = 2.0**40  # of duals in the knapsack: their sums are whole numbers below 2**53, exact in floating point
_SCALE = 1000.0  # sequences that the program sees, whatever there are: its tolerances are absolute


class Solution(NamedTuple):
    """Packs in use, the most used first.

    Attributes:
        packs: lengths, longest first.
        times: how often each; positive, and seldom whole.
        bound: every packing has so many packs; proven in whole numbers.
    """

    packs: List[Pack]
    times: List[float]
    bound: int


class ColumnGeneration:
    """Solves the program for one histogram after another, and keeps the packs it has found.

    Args:
        max_sequence_length: S.
        max_sequences: in a pack.
    """

    def __init__(self, max_sequence_length: int, max_sequences: int) -> None:
        self._size = max_sequence_length
        self._max_sequences = max_sequences
        self._packs: Dict[Pack, None] = {}  # in the order found
        self._random = np.random.default_rng(0)

    def solve(self, counts: Sequence[int], known: Iterable[Pack]) -> Solution:
        """The fewest packs, fractions allowed.

        Args:
            counts: ``counts[i]`` sequences of length i + 1, not all 0.
            known: packs that can hold all of them, such as a heuristic's.
        """
        present = np.flatnonzero(counts) + 1
        wanted = np.array([counts[length - 1] for length in present.tolist()], float)
        scale = wanted.sum() / _SCALE
        wanted /= scale
        self._add(known)
        self._add_starts(present)
        best_duals, bound = present / self._size, 0
        for _ in range(_MAX_ROUNDS):
            packs, times, duals = self._restricted(present, wanted)
            new: List[Pack] = []
            for weight in (_DRAWN, 0.0):  # the duals themselves, where drawn ones find nothing
                tried = np.floor((weight * best_duals + (1 - weight) * duals) * _UNIT)
                found = self._knapsack(present, tried)
                most = int(found.values.max())  # the duals over this are feasible: they prove a bound
                proven = -(-sum(int(dual) * counts[length - 1] for dual, length in zip(tried, present)) // most)
                if proven > bound:
                    bound, best_duals = proven, tried / most
                new = self._missing(found, present, duals)
                if new:
                    break
            if not new or times.sum() * scale <= bound * (1 + _GAP):
                break
            self._add(new)
        order = [place for place in np.argsort(-times, kind="stable").tolist() if times[place] > 0]
        return Solution([packs[place] for place in order], (times[order] * scale).tolist(), bound)

    def _add(self, packs: Iterable[Pack]) -> None:
        self._packs.update(dict.fromkeys(packs))

    def _add_starts(self, present: np.ndarray) -> None:
        for start in range(_STARTS):
            disturbed = 1 + _DISTURBANCE * self._random.random(present.size) * (start > 0)
            found = self._knapsack(present, present / self._size * disturbed)
            self._add(found.pack(length) for length in present.tolist())

    def _knapsack(self, present: np.ndarray, duals: np.ndarray) -> BestPacks:
        values = np.full(self._size, IMPOSSIBLE)
        values[present - 1] = duals
        return best_packs(values, self._max_sequences)

    def _missing(self, found: BestPacks, present: np.ndarray, duals: np.ndarray) -> List[Pack]:
        """Of the packs found those that the program would use: together worth more than 1."""
        worth = np.zeros(self._size + 1)
        worth[present] = duals
        packs = (found.pack(length) for length in present.tolist())
        return [pack for pack in packs if worth[list(pack)].sum() > 1 + _GAIN and pack not in self._packs]

    def _restricted(self, present: np.ndarray, wanted: np.ndarray) -> Tuple[List[Pack], np.ndarray, np.ndarray]:
        """The program over the packs known so far that hold only lengths there are.

        Returns:
            packs, C; how often each, ``(C,)``; duals, ``(L,)``.
        """
        lengths = set(present.tolist())
        packs = [pack for pack in self._packs if lengths.issuperset(pack)]
        sizes = [len(pack) for pack in packs]
        row = np.zeros(self._size + 1, np.int64)
        row[present] = np.arange(present.size)
        rows = row[np.fromiter((length for pack in packs for length in pack), np.int64, sum(sizes))]
        columns = np.repeat(np.arange(len(packs)), sizes)
        holds = csc_matrix((np.ones(rows.size), (rows, columns)), shape=(present.size, len(packs)))
        solved = linprog(np.ones(len(packs)), A_ub=-holds, b_ub=-wanted, method="highs-ds")
        if solved.x is None:
            raise ArithmeticError(f"HiGHS found no solution: {solved.message}")
        return packs, solved.x, np.maximum(-solved.ineqlin.marginals, 0.0)
