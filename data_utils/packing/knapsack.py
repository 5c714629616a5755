"""The pack of greatest value: dynamic programming over length, with a limit on the number of sequences.

Both column-generating algorithms ask the same question: given a value for each length, which packs are worth most?

Shapes: S max_sequence_length; D sequences in a pack at most.

Source: Gilmore and Gomory, "A linear programming approach to the cutting-stock problem", 1961 (the knapsack that
finds the next cutting pattern).
"""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Tuple

import numpy as np

IMPOSSIBLE = -1e300  # the value of what cannot be had; sums of it stay finite and lowest


class BestPacks(NamedTuple):
    """For each length the best pack that holds a sequence of that length.

    Attributes:
        values: ``(S,)``, of the best pack with a sequence of length i + 1; hugely negative where there is none.
        pack: gives the pack for a length: its lengths, longest first.
    """

    values: np.ndarray
    pack: Callable[[int], Tuple[int, ...]]


def best_packs(values: np.ndarray, max_sequences: int, exact: bool = False) -> BestPacks:
    """The most valuable pack around a sequence of each length.

    Args:
        values: ``(S,)``, what a sequence of length i + 1 adds; ``IMPOSSIBLE`` for lengths that must not be used.
        max_sequences: D.
        exact: whether a pack must be filled to the last token; otherwise the lengths may sum to less than S.
    """
    size = values.size
    usable = np.flatnonzero(values > IMPOSSIBLE / 2)
    shortest = int(usable[0]) + 1 if usable.size else size
    if max_sequences >= size // shortest:
        best, last = _any_number(values, exact)
        tables = None
    else:
        tables = _by_number(values, max_sequences - 1, exact)
        best = tables[-1][0] if tables else _nothing(size, exact)
    totals = values + best[size - 1 :: -1]  # the sequence itself, and the best of the space beside it

    def pack(length: int) -> Tuple[int, ...]:
        space = size - length
        found = _walk_any_number(last, space) if tables is None else _walk_by_number(tables, space)
        return tuple(sorted([length, *found], reverse=True))

    return BestPacks(totals, pack)


def _nothing(size: int, exact: bool) -> np.ndarray:
    """Value of an empty space: nothing, but where it must be filled it is not allowed."""
    best = np.zeros(size + 1)
    if exact:
        best[1:] = IMPOSSIBLE
    return best


def _any_number(values: np.ndarray, exact: bool) -> Tuple[np.ndarray, np.ndarray]:
    """Best value of each space with as many sequences as fit, and the sequence taken there, 0 for none."""
    size = values.size
    best = _nothing(size, exact)
    last = np.zeros(size + 1, np.int64)
    for space in range(1, size + 1):
        options = values[:space] + best[space - 1 :: -1]
        choice = int(options.argmax())
        if not exact:
            best[space] = best[space - 1]
        if options[choice] > best[space]:
            best[space], last[space] = options[choice], choice + 1
    return np.maximum(best, IMPOSSIBLE), last


def _walk_any_number(last: np.ndarray, space: int) -> List[int]:
    found = []
    while space:
        length = int(last[space])
        if length:
            found.append(length)
        space -= length or 1  # nothing ends here: the best is that of one token less
    return found


def _by_number(values: np.ndarray, count: int, exact: bool) -> List[Tuple[np.ndarray, np.ndarray]]:
    """Best value of each space with at most 1, 2, … ``count`` sequences, and the sequence taken there, 0 for none."""
    size = values.size
    spaces = np.arange(size + 1)
    best = _nothing(size, exact)
    tables = []
    for number in range(count):
        if number == 0 and exact:
            value, choice = np.append(IMPOSSIBLE, values), spaces - 1
        else:
            padded = np.concatenate((np.full(size, IMPOSSIBLE), best))
            stride = padded.strides[0]
            # rest[space, i] = best[space - (i + 1)], a view without copying
            rest = np.lib.stride_tricks.as_strided(
                padded[size - 1 :], (size + 1, size), (stride, -stride), writeable=False
            )
            options = rest + values
            choice = options.argmax(axis=1)
            value = options[spaces, choice]
        better = value > best
        best = np.where(better, value, best)
        tables.append((best, np.where(better, choice + 1, 0)))
    return tables


def _walk_by_number(tables: List[Tuple[np.ndarray, np.ndarray]], space: int) -> List[int]:
    found = []
    for _, last in reversed(tables):
        length = int(last[space])
        if length:
            found.append(length)
            space -= length
    return found
