"""NNLSHP, non-negative least-squares histogram packing.

How often to use each pack that fills the full length, so that the lengths used come nearest to those there are, in
the least-squares sense; rounded, and what is left over packed. The paper lists all packs, 22,102 of at most three
sequences at length 512, for a general solver. Here dynamic programming finds the packs that the solver needs next.

Source: arXiv 2107.02027, "Non-negative least squares histogram-packing": packs that fill the length exactly, padding of
up to 8 tokens weighted 0.09, the solution rounded to the nearest, sequences left over each with padding.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Sequence, Tuple

import numpy as np

from data_utils.packing.knapsack import best_packs
from data_utils.packing.least_squares import nonnegative_least_squares

Pack = Tuple[int, ...]

SHORT = 8  # tokens
SHORT_WEIGHT = 0.09
_BATCH = 8  # packs taken in at a time, of different lengths
_NOT_MUCH_WORSE = 0.1  # than the best of a batch


def nnlshp(counts: Sequence[int], max_sequences: int) -> Dict[Pack, int]:
    """Packs, longest sequence first, and how often each.

    Args:
        counts: ``counts[i]`` sequences of length i + 1; as many entries as a pack has tokens.
        max_sequences: in a pack.
    """
    weights = np.ones(len(counts))
    weights[:SHORT] = SHORT_WEIGHT

    def descents(gradient: np.ndarray, threshold: float) -> Iterator[Pack]:
        return _disjoint(gradient, max_sequences, threshold)

    fractions = nonnegative_least_squares(weights, np.array(counts, float), descents)
    uses = {pack: round(times) for pack, times in fractions.items() if round(times)}
    missing = _missing(counts, uses)
    for place, number in enumerate(missing):
        if number > 0:  # left over: each in a pack with padding
            uses[(place + 1,)] = uses.get((place + 1,), 0) + number
    return _leave_out(uses, [max(0, -number) for number in missing])


def _disjoint(gradient: np.ndarray, max_sequences: int, threshold: float) -> Iterator[Pack]:
    """The packs of greatest gradient that have no length in common, so that each can do its part."""
    best = best_packs(gradient, max_sequences, exact=True)
    order = np.argsort(-best.values, kind="stable").tolist()
    least = max(threshold, _NOT_MUCH_WORSE * float(best.values[order[0]]))
    used = np.zeros(gradient.size + 1, bool)
    found = 0
    for place in order:
        if best.values[place] <= least or found == _BATCH:
            return
        if used[place + 1]:
            continue
        pack = best.pack(place + 1)
        if not used[list(pack)].any():
            used[list(pack)] = True
            found += 1
            yield pack


def _missing(counts: Sequence[int], uses: Dict[Pack, int]) -> List[int]:
    """Sequences of each length that the packs have no place for; negative: places without a sequence."""
    missing = list(counts)
    for pack, times in uses.items():
        for length in pack:
            missing[length - 1] -= times
    return missing


def _leave_out(uses: Dict[Pack, int], surplus: List[int]) -> Dict[Pack, int]:
    """The packs without the places that have no sequence: these become padding, and empty packs go.

    Args:
        surplus: places of length i + 1 to take away; the packs have as many.
    """
    for length in range(len(surplus), 0, -1):
        while surplus[length - 1]:
            for pack in [pack for pack in uses if length in pack]:
                number = min(uses[pack], surplus[length - 1])
                surplus[length - 1] -= number
                uses[pack] -= number
                if not uses[pack]:
                    del uses[pack]
                place = pack.index(length)
                rest = pack[:place] + pack[place + 1 :]
                if rest:
                    uses[rest] = uses.get(rest, 0) + number
                if not surplus[length - 1]:
                    break
    return uses
