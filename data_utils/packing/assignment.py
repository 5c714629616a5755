"""Chooses the records of each pack: fills the packs of lengths that ``plan.py`` has chosen with records.

All records are listed by length; those of equal length are in an order drawn from the seed. A plan repeats each of its
packs several times in a row, and each slot in such a pack takes that many consecutive records from the list of its
length. The records of any pack can therefore be computed, and only the list is stored, on disk.

Shapes: R records, M packs, K different packs of the plan, S max_sequence_length.
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
    """The records of each pack, and the order of the packs.

    Attributes:
        list_path: NumPy file of all records, (R,), those of length 1 first.
        pack_starts: (K + 1,), the number of the first repetition of each of the plan's packs, and M.
        slot_starts: (K + 1,), the number of the first slot in each of the plan's packs, and the number of slots.
        slot_offsets: for each slot, the index of its first record in the list.
        seed: decides the order.
    """

    list_path: Path
    pack_starts: np.ndarray
    slot_starts: np.ndarray
    slot_offsets: np.ndarray
    seed: int

    @property
    def packs(self) -> int:
        return int(self.pack_starts[-1])

    def shuffled(self, begin: int, end: int) -> np.ndarray:
        """Return the packs at some positions in the order of the data set, int64 (end - begin,)."""
        positions = np.arange(begin, end, dtype=np.int64)
        return permute(positions, self.packs, self.seed, np.array([_PACKS_EPOCH]))

    def select_records(self, packs: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Return the records of packs, one pack after the other, and the number in each pack; both int64."""
        listed = np.load(self.list_path, mmap_mode="r", allow_pickle=False)
        kinds = np.searchsorted(self.pack_starts, packs, side="right") - 1
        sizes = np.diff(self.slot_starts)[kinds]
        first = np.cumsum(sizes) - sizes
        slots = np.repeat(self.slot_starts[kinds] - first, sizes) + np.arange(sizes.sum())
        steps = np.repeat(packs - self.pack_starts[kinds], sizes)
        return listed[self.slot_offsets[slots] + steps].astype(np.int64), sizes


def histogram(lengths: np.ndarray, max_sequence_length: int) -> np.ndarray:
    """Count records by length: ``counts[i]`` have length i + 1, for S lengths or up to the longest record."""
    counts = np.zeros(max_sequence_length + 1, np.int64)
    for begin in range(0, lengths.size, CHUNK):
        more = np.bincount(lengths[begin : begin + CHUNK], minlength=counts.size)
        counts = np.pad(counts, (0, more.size - counts.size)) + more
    return counts[1:]


def list_by_length(lengths: np.ndarray, counts: np.ndarray, seed: int, path: Path) -> None:
    """Write the list of all records by length, in random order within each length.

    This is a counting sort into a NumPy file, chunk by chunk, so that memory does not grow with the number of records.

    Args:
        lengths: (R,); may be a file mapped to memory.
        counts: the lengths' histogram.
    """
    count = lengths.size
    listed = np.lib.format.open_memmap(path, "w+", np.uint32 if count < 1 << 32 else np.int64, (count,))
    with open(path, "r+b") as stream:  # allocates the file; on a full disk, an assignment to it kills the process
        stream.seek(listed.offset)
        for begin in range(0, count, CHUNK):
            stream.write(bytes(min(CHUNK, count - begin) * listed.itemsize))
    next_offset = np.concatenate(([0, 0], np.cumsum(counts)))[:-1]  # where the next record of each length goes
    for begin in range(0, count, CHUNK):
        positions = np.arange(begin, min(begin + CHUNK, count), dtype=np.int64)
        records = permute(positions, count, seed, np.array([_RECORDS_EPOCH]))
        records = records[np.argsort(lengths[records], kind="stable")]
        ordered = lengths[records]
        here = np.bincount(ordered, minlength=next_offset.size)
        listed[(next_offset - np.cumsum(here) + here)[ordered] + np.arange(ordered.size)] = records
        next_offset += here
    listed.flush()


def assign(plan: PackingPlan, list_path: Path, seed: int) -> Assignment:
    """Assign a part of the list to each slot in each of the plan's packs."""
    counts = np.zeros(plan.max_sequence_length + 2, np.int64)
    for pack, times in zip(plan.packs, plan.repeats):
        for length in pack:
            counts[length + 1] += times
    next_offset = np.cumsum(counts).tolist()  # where the list of each length begins, then what is left of it
    offsets: List[int] = []
    for pack, times in zip(plan.packs, plan.repeats):
        for length in pack:
            offsets.append(next_offset[length])
            next_offset[length] += times
    return Assignment(
        list_path,
        np.array([0, *itertools.accumulate(plan.repeats)], np.int64),
        np.array([0, *itertools.accumulate(map(len, plan.packs))], np.int64),
        np.array(offsets, np.int64),
        seed,
    )


def most_in_a_pack(assignment: Assignment, amounts: np.ndarray) -> int:
    """Return the largest sum of ``amounts`` (R,), such as numbers of masked positions, over the records of one pack."""
    most = 0
    for begin in range(0, assignment.packs, CHUNK):
        packs = np.arange(begin, min(begin + CHUNK, assignment.packs), dtype=np.int64)
        records, sizes = assignment.select_records(packs)
        sums = np.add.reduceat(amounts[records].astype(np.int64), np.cumsum(sizes) - sizes)
        most = max(most, int(sums.max()))
    return most
