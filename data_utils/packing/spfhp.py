"""SPFHP, shortest-pack-first histogram packing: the longest sequences first, each into the pack with most space left.

Source: arXiv 2107.02027, "Shortest-pack-first histogram-packing": worst-fit decreasing on a histogram, all sequences of
a length at once.
"""

from __future__ import annotations

from typing import Dict, Sequence, Tuple

from data_utils.packing.open_packs import OpenPacks


def spfhp(counts: Sequence[int], max_sequences: int) -> Dict[Tuple[int, ...], int]:
    """Packs, longest sequence first, and how often each.

    Args:
        counts: ``counts[i]`` sequences of length i + 1; as many entries as a pack has tokens.
        max_sequences: in a pack.
    """
    packs = OpenPacks(len(counts), max_sequences)
    for length in range(len(counts), 0, -1):
        left = counts[length - 1]
        while left:
            space = packs.widest(length)
            number, pack = packs.take(space, left)
            packs.put(number, (*pack, length), space - length)
            left -= number
    return packs.all()
