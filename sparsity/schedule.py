"""When a pattern changes during training, and how much of it."""

from __future__ import annotations

import math
from typing import List


def pattern_steps(updates: int, changes: int) -> List[int]:
    """After which weight updates the pattern changes: evenly spaced, none at the end of training.

    Args:
        updates: weight updates of the whole training.
        changes: of the pattern; each step has one at most.

    Example:
        >>> pattern_steps(100, 4)
        [20, 40, 60, 80]
    """
    steps = {updates * number // (changes + 1) for number in range(1, changes + 1)}
    return sorted(steps - {0})


def prune_fraction(step: int, last: int, first_fraction: float) -> float:
    """Share of the blocks that is replaced at a step: α/2 · (1 + cos(π t / T)).

    Args:
        step: t, weight updates done.
        last: T, weight updates of the whole training.
        first_fraction: α, the share at the begin.

    Source: Evci et al. 2020 (RigL, arXiv 1911.11134), section 3; Dettmers & Zettlemoyer 2019. With α = 0.5 used for
    BERT by Dietrich et al. 2021 (arXiv 2108.06277).
    """
    return first_fraction / 2 * (1 + math.cos(math.pi * min(step, last) / last))
