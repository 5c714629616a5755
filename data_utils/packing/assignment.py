"""Which record goes into which pack: a plan of lengths, filled with the records of those lengths in random order.

All records are listed by length, those of a length in an order drawn from the seed. A plan uses each kind of pack so
many times in a row; each place of a kind takes that many records in a row from the list of its length. So the records
of any pack are found by arithmetic, and the list, on disk, is all that has to be kept.

Shapes: R records, M packs, S max_sequence_length.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import List, NamedTuple, Tuple

import numpy as np

from data_utils.packing.plan import PackingPlan
from data_utils.records.order import permute

CHUNK = 1 << 20  # records or packs at a time
_RECORDS_EPOCH, _PACKS_EPOCH = 1, 0  # two permutations from one seed


class Assignment(NamedTuple):
    """The packs in an order of their own, and the records of each.

    Attributes:
        by_length: ``(R,)`` records, those of length 1 first.
        kind_starts: number of the first pack of each kind, and at last M.
        place_starts: number of the first place of each kind, and at last of all.
        place_offsets: for each place of each kind, where in ``by_length`` its first record is.
        seed: of the order.
    """

    by_length: np.ndarray
    kind_starts: np.ndarray
    place_starts: np.ndarray
    place_offsets: np.ndarray
    seed: int

    @property
    def packs(self) -> int:
        """M."""
        return int(self.kind_starts[-1])

    def shuffled(self, begin: int, end: int) -> np.ndarray:
        """The packs at some places of the data set's order, int64 ``(end - begin,)``."""
        places = np.arange(begin, end, dtype=np.int64)
        return permute(places, self.packs, self.seed, np.array([_PACKS_EPOCH]))

    def records_of(self, packs: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """The records of packs, one behind the other, and how many each pack has; both int64."""
        kinds = np.searchsorted(self.kind_starts, packs, side="right") - 1
        sizes = (self.place_starts[1:] - self.place_starts[:-1])[kinds]
        first = np.cumsum(sizes) - sizes
        places = np.repeat(self.place_starts[kinds] - first, sizes) + np.arange(sizes.sum())
        steps = np.repeat(packs - self.kind_starts[kinds], sizes)
        return self.by_length[self.place_offsets[places] + steps].astype(np.int64), sizes


def histogram(lengths: np.ndarray, max_sequence_length: int) -> np.ndarray:
    """``counts[i]`` records of length i + 1; as many entries as the longest needs, at least S."""
    counts = np.zeros(max_sequence_length + 1, np.int64)
    for begin in range(0, lengths.size, CHUNK):
        more = np.bincount(lengths[begin : begin + CHUNK])
        counts = np.pad(counts, (0, max(0, more.size - counts.size)))
        counts[: more.size] += more
    return counts[1:]


def list_by_length(lengths: np.ndarray, counts: np.ndarray, seed: int, path: Path) -> np.ndarray:
    """Writes all records by length, in random order within each, and opens the list without reading it.

    Memory does not grow with the number of records: it is a counting sort, chunk by chunk, into a file.

    Args:
        lengths: ``(R,)``; may be a file mapped to memory.
        counts: its histogram.
        seed: of the order.
        path: of the list, a NumPy file.
    """
    count = lengths.size
    listed = np.lib.format.open_memmap(path, "w+", np.uint32 if count < 1 << 32 else np.int64, (count,))
    following = np.concatenate(([0, 0], np.cumsum(counts)))[:-1]  # where the next record of a length goes
    for begin in range(0, count, CHUNK):
        places = np.arange(begin, min(begin + CHUNK, count), dtype=np.int64)
        records = permute(places, count, seed, np.array([_RECORDS_EPOCH]))
        own = lengths[records]
        order = np.argsort(own, kind="stable")
        here = np.bincount(own, minlength=following.size)
        first = np.cumsum(here) - here
        ordered = own[order]
        listed[following[ordered] + np.arange(ordered.size) - first[ordered]] = records[order]
        following += here
    listed.flush()
    return np.load(path, mmap_mode="r", allow_pickle=False)


def assign(plan: PackingPlan, by_length: np.ndarray, seed: int) -> Assignment:
    """Gives each place of each kind of pack its stretch of the list."""
    counts = np.zeros(plan.max_sequence_length + 2, np.int64)
    for pack, times in zip(plan.packs, plan.repeats):
        for length in pack:
            counts[length + 1] += times
    following = np.cumsum(counts).tolist()  # where the list of each length begins, then what is left of it
    offsets: List[int] = []
    for pack, times in zip(plan.packs, plan.repeats):
        for length in pack:
            offsets.append(following[length])
            following[length] += times
    return Assignment(
        by_length,
        np.array([0, *itertools.accumulate(plan.repeats)], np.int64),
        np.array([0, *itertools.accumulate(map(len, plan.packs))], np.int64),
        np.array(offsets, np.int64),
        seed,
    )


def most_in_a_pack(assignment: Assignment, amounts: np.ndarray) -> int:
    """The greatest sum of a pack.

    Args:
        amounts: ``(R,)`` of each record, such as its masked positions.
    """
    most = 0
    for begin in range(0, assignment.packs, CHUNK):
        packs = np.arange(begin, min(begin + CHUNK, assignment.packs), dtype=np.int64)
        records, sizes = assignment.records_of(packs)
        sums = np.add.reduceat(amounts[records].astype(np.int64), np.cumsum(sizes) - sizes)
        most = max(most, int(sums.max()))
    return most
