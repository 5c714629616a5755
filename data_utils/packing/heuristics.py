"""The two published heuristics, which put the longest sequences first into the emptiest or the fullest open pack.

SPFHP, shortest-pack-first histogram packing, is worst-fit decreasing on a histogram; LPFHP, longest-pack-first, is
best-fit decreasing. All sequences of a length are placed at once, in groups of equal packs.

Source: arXiv 2107.02027.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Dict, List, Sequence, Tuple

Pack = Tuple[int, ...]


def longest_first(counts: Sequence[int], max_sequences: int, prefer_full: bool) -> Dict[Pack, int]:
    """Put each sequence, longest first, into the pack that it fills best (LPFHP) or that has the most space (SPFHP).

    The result is the packs, longest sequence first, and how often each is used.
    """
    size = len(counts)
    groups: Dict[int, List[Tuple[int, Pack]]] = {}  # space left → groups of equal packs, the newest last
    spaces: List[int] = []  # the keys of `groups`, ascending
    uses: Dict[Pack, int] = {}
    pack: Pack

    def put(number: int, pack: Pack, space: int) -> None:
        if not space or len(pack) == max_sequences:
            uses[pack] = uses.get(pack, 0) + number
            return
        if space not in groups:
            insort(spaces, space)
        groups.setdefault(space, []).append((number, pack))

    for length in range(size, 0, -1):
        left = counts[length - 1]
        while left:
            number, pack, space = left, (), size  # new packs
            if spaces and spaces[-1] >= length:
                space = spaces[bisect_left(spaces, length) if prefer_full else -1]
                number, pack = groups[space].pop()
                if not groups[space]:
                    del groups[space]
                    spaces.remove(space)
            # A pack that was just filled is the fullest, so it takes the same length again as long as that fits.
            times = min(space // length, max_sequences - len(pack), left) if prefer_full else 1
            used = min(number, left // times)
            if pack and used < number:
                put(number - used, pack, space)
            put(used, pack + (length,) * times, space - length * times)
            left -= used * times
    for space in spaces:
        for number, pack in groups[space]:
            uses[pack] = uses.get(pack, 0) + number
    return uses
