"""Chooses the sequences of each pack: fills the packs of lengths that ``plan.py`` has chosen with sequences.

All sequences are listed by length; those of equal length are in an order drawn from the seed. A plan repeats each of
its packs several times in a row, and each repetition takes the next sequences from the lists of its lengths. The
sequences of any pack can therefore be computed.

Shapes: W sequences, M packs, K different packs of the plan, T sequences in the packs asked for.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import List, NamedTuple, Sequence, Tuple, Union

import numpy as np

from data_utils.packing.plan import PackingPlan


class Packs(NamedTuple):
    listed: np.ndarray  # (W,) all sequences, the shortest first
    pack_starts: np.ndarray  # (K + 1,) the number of the first repetition of each of the plan's packs, and M
    slot_starts: np.ndarray  # (K + 1,) the number of the first slot in each of the plan's packs, and that of slots
    slot_offsets: np.ndarray  # for each slot, the index of its first sequence in the list
    slot_steps: np.ndarray  # for each slot, the distance in the list of what it takes in consecutive repetitions

    @property
    def number(self) -> int:
        return int(self.pack_starts[-1])

    def select(self, packs: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Return the sequences of packs, one pack after the other, ``(T,)``, and the number in each pack."""
        kinds = np.searchsorted(self.pack_starts, packs, side="right") - 1
        sizes = np.diff(self.slot_starts)[kinds]
        first = np.cumsum(sizes) - sizes
        slots = np.repeat(self.slot_starts[kinds] - first, sizes) + np.arange(sizes.sum())
        repetitions = np.repeat(packs - self.pack_starts[kinds], sizes)
        return self.listed[self.slot_offsets[slots] + repetitions * self.slot_steps[slots]], sizes


def fill_packs(plan: PackingPlan, lengths: np.ndarray, seed: int) -> Packs:
    """Return the packs of a plan for sequences of ``lengths`` ``(W,)``; the seed decides among equal lengths."""
    order = np.random.default_rng(seed).permutation(len(lengths))[::-1]
    listed = order[np.argsort(lengths[order], kind="stable")]
    next_offset = np.cumsum([0, *np.bincount(lengths, minlength=plan.max_sequence_length + 1)]).tolist()
    offsets: List[int] = []
    steps: List[int] = []
    for pack, times in zip(plan.packs, plan.repeats):
        for length, slots in Counter(pack).items():  # equal lengths follow one another in a pack
            offsets += range(next_offset[length], next_offset[length] + slots)
            steps += [slots] * slots
            next_offset[length] += slots * times
    pack_starts = np.array([0, *itertools.accumulate(plan.repeats)], np.int64)
    slot_starts = np.array([0, *itertools.accumulate(map(len, plan.packs))], np.int64)
    return Packs(listed, pack_starts, slot_starts, np.array(offsets, np.int64), np.array(steps, np.int64))


def given_packs(packs: Union[np.ndarray, Sequence[Sequence[int]]]) -> Packs:
    starts = np.cumsum([0, *map(len, packs)])
    slots = np.arange(starts[-1])
    return Packs(np.concatenate(packs), np.arange(len(packs) + 1), starts, slots, np.zeros_like(slots))


def histogram(lengths: np.ndarray, max_sequence_length: int) -> np.ndarray:
    """Count sequences by length: ``counts[i]`` have length i + 1, for S lengths or up to the longest sequence."""
    return np.bincount(lengths, minlength=max_sequence_length + 1)[1:]
