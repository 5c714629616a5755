"""LPFHP, longest-pack-first histogram packing: the longest sequences first, each into the pack that it fills best.

Source: arXiv 2107.02027, "Longest-pack-first histogram-packing": best-fit decreasing on a histogram, all sequences of
a length at once. A pack that has just been filled is the fullest, so it takes the same length again as long as it fits.
"""

from __future__ import annotations

from typing import Dict, Sequence, Tuple

from data_utils.packing.open_packs import OpenPacks


def lpfhp(counts: Sequence[int], max_sequences: int) -> Dict[Tuple[int, ...], int]:
    """Packs, longest sequence first, and how often each.

    Args:
        counts: ``counts[i]`` sequences of length i + 1; as many entries as a pack has tokens.
        max_sequences: in a pack.
    """
    packs = OpenPacks(len(counts), max_sequences)
    for length in range(len(counts), 0, -1):
        left = counts[length - 1]
        while left:
            space = packs.tightest(length)
            times = min(space // length, max_sequences - packs.sequences_in(space), left)
            number, pack = packs.take(space, left // times)
            packs.put(number, pack + (length,) * times, space - length * times)
            left -= number * times
    return packs.all()
