"""From counts to shares, and what they should be."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from data_utils.doctor.examination import Counts
from data_utils.packing import plan_packing
from data_utils.text.masking import MASK_SHARE, RANDOM_SHARE

SEQUENCES_PER_PACK = 3  # that the promise of packing is reckoned with
SIGMAS = 5.0  # a share is off when chance alone would give it once in a million data sets


class Share(NamedTuple):
    """A share of a number of cases, and what it should be.

    Attributes:
        found, expected: 0 to 1; expected None where anything may be right.
        cases: it was found among.
        tolerance: how far it may be off beside what chance explains.
    """

    found: float
    expected: float | None
    cases: int
    tolerance: float

    @property
    def is_off(self) -> bool:
        """Whether chance and tolerance do not explain it."""
        if self.expected is None or not self.cases:
            return False
        chance = SIGMAS * math.sqrt(self.expected * (1 - self.expected) / self.cases)
        return abs(self.found - self.expected) > self.tolerance + chance


def share(part: float, whole: float) -> float:
    """0 of nothing."""
    return part / whole if whole else 0.0


class Masking(NamedTuple):
    """What became of the tokens to be predicted."""

    masked: Share
    replaced: Share
    kept: Share


def masking_of(counts: Counts) -> Masking:
    """Shares of [MASK], another piece, and the piece itself (Devlin et al. 2019, section 3.1: 80, 10, 10 %)."""
    total = counts.predictions
    keep = 1 - MASK_SHARE - RANDOM_SHARE
    return Masking(
        Share(share(counts.masked, total), MASK_SHARE, total, 0.01),
        Share(share(total - counts.masked - counts.kept, total), RANDOM_SHARE, total, 0.01),
        Share(share(counts.kept, total), keep, total, 0.01),
    )


def mask_rate_of(counts: Counts, settings: dict[str, Any]) -> Share:
    """Predicted tokens among all, beside what the settings of the data set lead to for its lengths."""
    found = share(counts.predictions, counts.tokens)
    probability, most = settings.get("masked_lm_prob"), settings.get("max_predictions_per_seq")
    if not probability or not most:
        return Share(found, None, counts.tokens, 0.0)
    lengths = np.arange(counts.lengths.size)
    each = np.minimum(np.clip(np.round(lengths * probability), 1, most), np.maximum(lengths - 3, 0))
    return Share(found, share(float((each * counts.lengths).sum()), counts.tokens), counts.tokens, 0.01)


def next_sentence_of(counts: Counts) -> Share:
    """Pairs with a random second segment."""
    return Share(share(counts.random_next, counts.sequences), 0.5, counts.sequences, 0.03)


class Packing(NamedTuple):
    """What packing would give.

    Attributes:
        factor: sequences in a pack on average: so many times as fast is a pass over the data.
        efficiency_before, efficiency: share of real tokens, unpacked and packed.
    """

    factor: float
    efficiency_before: float
    efficiency: float


def packing_of(counts: Counts, max_seq_length: int) -> Packing | None:
    """What packing would give for these lengths; None without records."""
    if not counts.sequences:
        return None
    plan = plan_packing(counts.lengths[1:].tolist(), max_seq_length, SEQUENCES_PER_PACK, "lpfhp")
    before = share(counts.tokens, counts.sequences * max_seq_length)
    return Packing(plan.packing_factor, before, plan.efficiency)


def duplicates_of(digests: Iterable[np.ndarray], sampled: int) -> float:
    """Share of records (or lines) that another one equals: all but the first of each.

    Args:
        digests: of the sampled ones, by file.
        sampled: of every so many, one.
    """
    together = np.concatenate([np.empty(0, np.uint64), *digests])
    return 1 - share(np.unique(together).size, together.size) if together.size else 0.0
