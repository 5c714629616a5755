"""Nearly the fewest packs that there can be: the linear program of packing, rounded.

The program's solution uses each pack a number of times that is seldom whole. The whole parts are kept; a pack that
should be used once more, nearly, is; and the program is solved again for the sequences that are left, a few times over.
On the histograms of real text this ends within a pack or two of the bound that the program proves.

Source: see ``column_generation``; rounding by residuals as in Wäscher and Gau, "Heuristics for the integer
one-dimensional cutting stock problem", 1996.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, NamedTuple, Sequence, Tuple

from data_utils.packing.bounds import simple_bound
from data_utils.packing.column_generation import ColumnGeneration
from data_utils.packing.lpfhp import lpfhp
from data_utils.packing.spfhp import spfhp

Pack = Tuple[int, ...]

_ROUNDS = 4
_WHOLE = 1e-6  # so little below a whole number is the whole number
_NEARLY = 0.5
_HARDLY = 0.02  # a round that packs a smaller share of the sequences takes some packs by force
_FORCED = 0.1  # of the packs


class Optimum(NamedTuple):
    """Packs, longest sequence first, how often each, and the number of packs that every plan needs."""

    uses: Dict[Pack, int]
    bound: int


def optimal(counts: Sequence[int], max_sequences: int) -> Optimum:
    """The best plan found.

    Args:
        counts: ``counts[i]`` sequences of length i + 1, not all 0; as many entries as a pack has tokens.
        max_sequences: in a pack.
    """
    simple = _best_heuristic(counts, max_sequences)
    bound = simple_bound(counts, max_sequences)
    if sum(simple.values()) == bound:
        return Optimum(simple, bound)
    rounded, proven = _rounded(counts, max_sequences, simple)
    bound = max(bound, proven)
    return Optimum(min(rounded, simple, key=lambda uses: sum(uses.values())), bound)


def _best_heuristic(counts: Sequence[int], max_sequences: int) -> Dict[Pack, int]:
    plans = (lpfhp(counts, max_sequences), spfhp(counts, max_sequences))
    return min(plans, key=lambda uses: sum(uses.values()))


def _rounded(counts: Sequence[int], max_sequences: int, simple: Dict[Pack, int]) -> Tuple[Dict[Pack, int], int]:
    """The program's solution made whole, and its bound."""
    program = ColumnGeneration(len(counts), max_sequences)
    left = list(counts)
    uses: Dict[Pack, int] = Counter()
    rest: Dict[Pack, int] = simple  # what would pack all that is left
    bound = 0
    for number in range(_ROUNDS):
        solution = program.solve(left, rest)
        if number == 0:
            bound = solution.bound
        if not _take_whole_parts(solution.packs, solution.times, left, uses):
            break
        rest = _best_heuristic(left, max_sequences)
        if not rest or sum(uses.values()) + sum(rest.values()) <= bound:
            break
    for pack, times in rest.items():
        uses[pack] += times
    return uses, bound


def _take_whole_parts(packs: List[Pack], times: List[float], left: List[int], uses: Dict[Pack, int]) -> bool:
    """Moves sequences from ``left`` to ``uses``; says whether there were any.

    Args:
        packs: of a solution.
        times: how often each.
        left: sequences of length i + 1, changed.
        uses: packs and how often, changed.
    """
    before = sum(left)
    for pack, number in zip(packs, times):
        _take(pack, int(number + _WHOLE), left, uses)
    nearest = sorted(range(len(packs)), key=lambda place: int(times[place] + _WHOLE) - times[place])
    for place in nearest:
        if times[place] % 1.0 >= _NEARLY:
            _take(packs[place], 1, left, uses)
    if before - sum(left) < _HARDLY * before:
        wanted = max(1, int(_FORCED * len(packs)))
        for place in nearest:
            wanted -= _take(packs[place], 1, left, uses)
            if not wanted:
                break
    return sum(left) < before


def _take(pack: Pack, times: int, left: List[int], uses: Dict[Pack, int]) -> int:
    """Uses a pack so often, or as often as there are sequences for it; returns how often."""
    needed = Counter(pack)
    times = min(times, *(left[length - 1] // number for length, number in needed.items()))
    if times > 0:
        uses[pack] += times
        for length, number in needed.items():
            left[length - 1] -= number * times
    return times
