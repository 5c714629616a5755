"""Packs that can still take sequences, found by the space that is left in them.

Shapes: S max_sequence_length; D sequences in a pack at most.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

Pack = Tuple[int, ...]  # lengths of its sequences, in the order in which they were put in


class OpenPacks:
    """Groups of like packs under the space that is left; closed ones, full or of D sequences, are put aside.

    Of groups with the same space the one added last comes first. Which spaces there are is one integer, bit s for
    space s, so that the widest and the tightest are found without a search.

    Args:
        max_sequence_length: S.
        max_sequences: D.

    Attributes:
        max_sequences: D.
    """

    def __init__(self, max_sequence_length: int, max_sequences: int) -> None:
        self.max_sequences = max_sequences
        self._size = max_sequence_length
        self._groups: List[List[Tuple[int, Pack]]] = [[] for _ in range(max_sequence_length + 1)]
        self._spaces = 0
        self._closed: List[Tuple[int, Pack]] = []

    def widest(self, length: int) -> int:
        """The greatest space, if a sequence of this length fits; the whole of a new pack otherwise."""
        space = self._spaces.bit_length() - 1
        return space if space >= length else self._size

    def tightest(self, length: int) -> int:
        """The smallest space in which a sequence of this length fits; the whole of a new pack if there is none."""
        fitting = self._spaces >> length
        return length + (fitting & -fitting).bit_length() - 1 if fitting else self._size

    def sequences_in(self, space: int) -> int:
        """How many sequences are in the packs that :meth:`take` would give for this space."""
        return 0 if space == self._size else len(self._groups[space][-1][1])

    def take(self, space: int, most: int) -> Tuple[int, Pack]:
        """At most so many like packs out of those with this space; new ones if it is that of a whole pack.

        Returns:
            how many, and the lengths in each.
        """
        if space == self._size:
            return most, ()
        group = self._groups[space]
        number, pack = group.pop()
        if number > most:
            group.append((number - most, pack))
            return most, pack
        if not group:
            self._spaces ^= 1 << space
        return number, pack

    def put(self, number: int, pack: Pack, space: int) -> None:
        """Adds like packs with so much space left in each."""
        if space and len(pack) < self.max_sequences:
            self._groups[space].append((number, pack))
            self._spaces |= 1 << space
        else:
            self._closed.append((number, pack))

    def all(self) -> Dict[Pack, int]:
        """Every pack, open or closed, and how often."""
        uses: Dict[Pack, int] = {}
        for group in [self._closed, *self._groups]:
            for number, pack in group:
                uses[pack] = uses.get(pack, 0) + number
        return uses
