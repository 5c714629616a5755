"""How few packs there can be, as far as it shows at a glance."""

from __future__ import annotations

from typing import Sequence


def simple_bound(counts: Sequence[int], max_sequences: int) -> int:
    """Packs needed if sequences could be cut anywhere, or if they had no length; every plan has as many.

    Args:
        counts: ``counts[i]`` sequences of length i + 1; as many entries as a pack has tokens.
        max_sequences: in a pack.
    """
    tokens = sum(number * length for length, number in enumerate(counts, 1))
    return max(-(-tokens // len(counts)), -(-sum(counts) // max_sequences))
