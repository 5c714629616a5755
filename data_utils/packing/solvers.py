"""The two algorithms that choose among all possible packs: ``optimal`` and ``nnlshp``.

There are too many packs to list. SciPy therefore solves the problem for a few packs; its solution gives the value (dual
price) of a sequence of each length; and dynamic programming finds the packs of greatest value, which are added until no
better one exists (column generation: Gilmore and Gomory, "A linear programming approach to the cutting-stock problem",
1961).

Shapes: S tokens of a pack, P packs, L lengths that occur.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Callable, Dict, Iterable, List, NamedTuple, Sequence, Tuple

import numpy as np

from data_utils.packing.heuristics import Pack, longest_first

if TYPE_CHECKING:  # what plans with best fit does not load SciPy
    from scipy.sparse import csc_matrix

IMPOSSIBLE = -1e300  # value of lengths that must not be used; sums of it remain finite and lowest

# optimal
STARTS = 24
PERTURBATION = 0.02
GAP = 1e-5  # relative distance from the bound at which a solution is good enough
GAIN = 1e-9  # smallest value above 1 that counts
MAX_SOLUTIONS = 60
UNIT = 2.0**40  # scale of duals in the knapsack: their sums are whole numbers below 2**53, exact in floating point
SEQUENCES = 1000.0  # total to which the linear program's counts are scaled, because its tolerances are absolute
ROUNDS = 4
WHOLE = 1e-6  # a number less than this below a whole number counts as that whole number

# nnlshp
SHORT, SHORT_WEIGHT = 8, 0.09  # sequences of at most 8 tokens count less
SMALLEST_GRADIENT = 1e-7  # relative to the greatest number of sequences of a length


class BestPacks(NamedTuple):
    """The best packs with a sequence of each length.

    ``pack_value`` is (S,), hugely negative where there is none; ``pack`` returns lengths, longest first.
    """

    pack_value: np.ndarray
    pack: Callable[[int], Pack]


def best_packs(values: np.ndarray, max_sequences: int, exact: bool = False) -> BestPacks:
    """Find the pack of greatest value that contains a sequence of each length, by dynamic programming.

    The ``values`` are (S,), of sequences of length i + 1; ``IMPOSSIBLE`` for lengths that must not be used.
    """
    size = values.size
    spaces = np.arange(size + 1)
    rest = spaces[:, None] - np.arange(1, size + 1)  # (S + 1, S), the space left next to a sequence; negative: none
    best = np.zeros(size + 1)  # (S + 1,), the greatest value of each space with 0, then 1, 2, … sequences at most
    if exact:
        best[1:] = IMPOSSIBLE
    taken: List[np.ndarray] = []  # each (S + 1,): the length taken there, 0 for none
    for _ in range(max_sequences - 1):
        options = np.append(best, np.full(size, IMPOSSIBLE))[rest] + values
        choice = options.argmax(axis=1)
        pack_value = options[spaces, choice]
        better = pack_value > best
        if not better.any():
            break
        best = np.where(better, pack_value, best)
        taken.append(np.where(better, choice + 1, 0))

    def pack(length: int) -> Pack:
        lengths, space = [length], size - length
        for lengths_taken in reversed(taken):
            if lengths_taken[space]:
                lengths.append(int(lengths_taken[space]))
                space -= lengths[-1]
        return tuple(sorted(lengths, reverse=True))

    return BestPacks(values + best[size - 1 :: -1], pack)


def _matrix(packs: Sequence[Pack], size: int) -> csc_matrix:
    """Return the number of sequences of length i + 1 in each pack, (S, P)."""
    from scipy.sparse import csc_matrix

    rows = [length - 1 for pack in packs for length in pack]
    columns = np.repeat(np.arange(len(packs)), [len(pack) for pack in packs])
    return csc_matrix((np.ones(len(rows)), (rows, columns)), shape=(size, len(packs)))


def optimal(counts: Sequence[int], max_sequences: int, bound: int) -> Tuple[Dict[Pack, int], int]:
    """Round the solution of the linear program; on real text this gives the fewest packs possible, or one more.

    The whole parts of the solution are kept, and fractions above a half are rounded up; then the program is solved
    again for the sequences that are left, a few times over (residual rounding: Wäscher and Gau, "Heuristics for the
    integer one-dimensional cutting stock problem", 1996).

    The packs are returned with a higher ``bound`` if one was proven.
    """
    rest = simple = _best_heuristic(counts, max_sequences)
    if sum(simple.values()) == bound:
        return simple, bound
    program = _Program(len(counts), max_sequences)
    left = list(counts)
    uses: Dict[Pack, int] = Counter()
    for number in range(ROUNDS):
        packs, times, proven = program.solve(left, rest)
        if number == 0:
            bound = max(bound, proven)
        if not _take_rounded(packs, times, left, uses):
            break
        rest = _best_heuristic(left, max_sequences)
        if sum(uses.values()) + sum(rest.values()) <= bound:
            break
    for pack, repeats in rest.items():
        uses[pack] += repeats
    return min(uses, simple, key=lambda plan: sum(plan.values())), bound


def _best_heuristic(counts: Sequence[int], max_sequences: int) -> Dict[Pack, int]:
    plans = [longest_first(counts, max_sequences, prefer_full) for prefer_full in (True, False)]
    return min(plans, key=lambda uses: sum(uses.values()))


class _Program:
    """The linear program of packing: how often to use each pack, fractions allowed, for the smallest number of packs.

        minimise Σ x_p   subject to   Σ a_lp x_p ≥ b_l for every length l,   x ≥ 0

    Here a_lp is the number of sequences of length l in pack p, and b_l the number to be packed.
    """

    def __init__(self, size: int, max_sequences: int) -> None:
        self._size, self._max_sequences = size, max_sequences
        self._packs: Dict[Pack, None] = {}  # in the order in which they were added
        self._random = np.random.default_rng(0)

    def solve(self, counts: Sequence[int], known: Iterable[Pack]) -> Tuple[List[Pack], List[float], int]:
        """Find the fewest packs for a histogram; ``known`` packs have space for all its sequences."""
        present = np.flatnonzero(counts) + 1
        scale = sum(counts) / SEQUENCES
        demand = np.array([counts[length - 1] for length in present.tolist()], float) / scale
        self._packs.update(dict.fromkeys(known))
        for start in range(STARTS):  # l/S are a perfect packing's duals; slightly changed, they give many full packs
            perturbed = 1 + PERTURBATION * self._random.random(present.size) * (start > 0)
            best = self._best_packs(present, present / self._size * perturbed)
            self._packs.update(dict.fromkeys(map(best.pack, present.tolist())))
        bound = 0
        for _ in range(MAX_SOLUTIONS):
            packs, times, duals = self._restricted(present, demand)
            duals = np.floor(duals * UNIT)
            best = self._best_packs(present, duals)
            most = int(best.pack_value.max())  # divided by it, the duals are feasible and prove a bound
            total = sum(int(dual) * counts[length - 1] for dual, length in zip(duals, present.tolist()))
            bound = max(bound, -(-total // most))
            missing = present[best.pack_value[present - 1] > (1 + GAIN) * UNIT].tolist()
            new = [pack for pack in map(best.pack, missing) if pack not in self._packs]
            if not new or times.sum() * scale <= bound * (1 + GAP):
                break
            self._packs.update(dict.fromkeys(new))
        order = [index for index in np.argsort(-times, kind="stable").tolist() if times[index] > 0]
        return [packs[index] for index in order], (times[order] * scale).tolist(), bound

    def _best_packs(self, present: np.ndarray, duals: np.ndarray) -> BestPacks:
        values = np.full(self._size, IMPOSSIBLE)
        values[present - 1] = duals
        return best_packs(values, self._max_sequences)

    def _restricted(self, present: np.ndarray, demand: np.ndarray) -> Tuple[List[Pack], np.ndarray, np.ndarray]:
        """Solve for the packs known so far; return them, how often each is used (P,), and the duals (L,)."""
        from scipy.optimize import linprog

        lengths = set(present.tolist())
        packs = [pack for pack in self._packs if lengths.issuperset(pack)]
        contents = _matrix(packs, self._size)[present - 1]
        solved = linprog(np.ones(len(packs)), A_ub=-contents, b_ub=-demand, method="highs-ds")
        if solved.x is None:
            raise ArithmeticError(f"HiGHS found no solution: {solved.message}")
        return packs, solved.x, np.maximum(-solved.ineqlin.marginals, 0.0)


def _take_rounded(packs: List[Pack], times: List[float], left: List[int], uses: Dict[Pack, int]) -> bool:
    """Move sequences from ``left`` to ``uses`` by the rounded solution; return whether any were moved."""
    before = sum(left)
    whole = [int(number + WHOLE) for number in times]
    for pack, number in zip(packs, whole):
        _take(pack, number, left, uses)
    for index in sorted(range(len(packs)), key=lambda index: whole[index] - times[index]):  # greatest fraction first
        if times[index] % 1.0 >= 0.5:
            _take(packs[index], 1, left, uses)
    return sum(left) < before


def _take(pack: Pack, times: int, left: List[int], uses: Dict[Pack, int]) -> None:
    """Use a pack ``times`` times, or as often as there are sequences for it."""
    needed = Counter(pack)
    times = min(times, *(left[length - 1] // number for length, number in needed.items()))
    if times > 0:
        uses[pack] += times
        for length, number in needed.items():
            left[length - 1] -= number * times


def nnlshp(counts: Sequence[int], max_sequences: int, bound: int) -> Tuple[Dict[Pack, int], int]:
    """Non-negative least squares histogram packing, as published (arXiv 2107.02027).

    Find how often to use each completely full pack to come nearest to ``counts``, and round this to whole numbers. Each
    sequence that is left over gets a pack of its own.
    """
    fractions = least_squares(np.array(counts, float), max_sequences)
    uses = {pack: round(times) for pack, times in fractions.items() if round(times)}
    missing = list(counts)
    for pack, times in uses.items():
        for length in pack:
            missing[length - 1] -= times
    for length, number in enumerate(missing, 1):
        if number > 0:
            uses[(length,)] = uses.get((length,), 0) + number
    for length in range(len(counts), 0, -1):
        _remove(length, max(0, -missing[length - 1]), uses)
    return uses, bound


def least_squares(counts: np.ndarray, max_sequences: int) -> Dict[Pack, float]:
    """Return the packs in use, all completely full, and how often each is used, a positive fraction."""
    from scipy.optimize import nnls

    size = counts.size
    weights = np.ones(size)
    weights[:SHORT] = SHORT_WEIGHT
    target = residual = before = weights * counts / counts.max()
    uses: Dict[Pack, float] = {}
    while True:
        new = _steepest(weights * residual, max_sequences)
        if uses.keys() >= set(new):
            return {pack: times * counts.max() for pack, times in uses.items()}
        new += _steepest(weights * (residual + before) / 2, max_sequences)  # halves the number of solutions needed
        packs = list(dict.fromkeys([*uses, *new]))
        columns = weights[:, None] * _matrix(packs, size).toarray()
        times, _ = nnls(columns, target, maxiter=10 * len(packs))
        before, residual = residual, target - columns @ times
        uses = {pack: number for pack, number in zip(packs, times.tolist()) if number > 0}


def _steepest(gradient: np.ndarray, max_sequences: int) -> List[Pack]:
    """Return, for each length, the full pack containing it that reduces the residual most, if any does."""
    best = best_packs(gradient, max_sequences, exact=True)
    return [best.pack(length) for length in (np.flatnonzero(best.pack_value > SMALLEST_GRADIENT) + 1).tolist()]


def _remove(length: int, surplus: int, uses: Dict[Pack, int]) -> None:
    """Turn slots of this length that have no sequence into padding, and remove packs that become empty."""
    while surplus:
        pack = next(pack for pack in uses if length in pack)
        number = min(uses[pack], surplus)
        surplus -= number
        uses[pack] -= number
        if not uses[pack]:
            del uses[pack]
        index = pack.index(length)
        rest = pack[:index] + pack[index + 1 :]
        if rest:
            uses[rest] = uses.get(rest, 0) + number


PLANNERS = {"nnlshp": nnlshp, "optimal": optimal}
