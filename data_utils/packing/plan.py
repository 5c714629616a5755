"""From a histogram of lengths to a plan of packs, by any of the algorithms.

``counts[i]`` is the number of sequences of length i + 1; a plan says which lengths share a pack, and how often.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from importlib import import_module
from typing import Dict, List, Sequence, Tuple, Union

from data_utils.packing.bounds import simple_bound
from utilities.errors import UserError

Pack = Tuple[int, ...]

ALGORITHMS = ("spfhp", "lpfhp", "nnlshp", "optimal")
UNLIMITED = "max"


@dataclass(frozen=True)
class PackingPlan:
    """Which lengths go together, and how often.

    Attributes:
        packs: different packs, each the lengths of its sequences, longest first; the most used first.
        repeats: how often each pack is used.
        max_sequence_length: tokens in a pack, padding included.
        fewest_packs: every plan for these sequences needs so many packs; proven by ``optimal``, by the others only as
            far as the number of tokens and of sequences shows.
    """

    packs: Tuple[Pack, ...]
    repeats: Tuple[int, ...]
    max_sequence_length: int
    fewest_packs: int

    @property
    def number_of_packs(self) -> int:
        """All packs."""
        return sum(self.repeats)

    @property
    def number_of_sequences(self) -> int:
        """All sequences."""
        return sum(times * len(pack) for pack, times in zip(self.packs, self.repeats))

    @property
    def number_of_tokens(self) -> int:
        """All tokens but padding."""
        return sum(times * sum(pack) for pack, times in zip(self.packs, self.repeats))

    @property
    def max_sequences_in_a_pack(self) -> int:
        """Of the fullest pack; 0 in an empty plan."""
        return max((len(pack) for pack in self.packs), default=0)

    @property
    def efficiency(self) -> float:
        """Share of real tokens among all tokens of the packs, 0 to 1; 1 for an empty plan, which has no padding."""
        room = self.number_of_packs * self.max_sequence_length
        return self.number_of_tokens / room if room else 1.0

    @property
    def packing_factor(self) -> float:
        """Sequences in a pack on average; 1 for an empty plan."""
        packs = self.number_of_packs
        return self.number_of_sequences / packs if packs else 1.0


def plan_packing(
    counts: Sequence[int],
    max_sequence_length: int,
    max_sequences_per_pack: Union[int, str] = 3,
    algorithm: str = "optimal",
) -> PackingPlan:
    """Which lengths to put together.

    Args:
        counts: ``counts[i]`` sequences of length i + 1; a sequence or an array of whole numbers.
        max_sequence_length: tokens in a pack.
        max_sequences_per_pack: sequences in a pack at most; ``"max"`` for as many as fit.
        algorithm: one of ``ALGORITHMS``: ``spfhp``, ``lpfhp`` and ``nnlshp`` as published (arXiv 2107.02027);
            ``optimal``, a linear program, rounded.

    Returns:
        a plan in which every sequence has exactly one place.

    Raises:
        UserError: an argument cannot be used; says which and why.

    Example:
        >>> plan = plan_packing([0, 4, 2, 0], max_sequence_length=5, max_sequences_per_pack=2)  # 4 of 2, 2 of 3 tokens
        >>> dict(zip(plan.packs, plan.repeats)), plan.efficiency
        ({(3, 2): 2, (2, 2): 1}, 0.9333333333333333)
    """
    size, limit = checked_choices(max_sequence_length, max_sequences_per_pack, algorithm)
    numbers = _checked_counts(counts, size)
    if not any(numbers):
        return PackingPlan((), (), size, 0)
    # The file of an algorithm has its name; imported when used, for some need SciPy.
    found = getattr(import_module(f"data_utils.packing.{algorithm}"), algorithm)(numbers, limit)
    uses, bound = found if isinstance(found, tuple) else (found, simple_bound(numbers, limit))
    _verify(uses, numbers, limit)
    order = sorted(uses, key=lambda pack: (-uses[pack], pack))
    return PackingPlan(tuple(order), tuple(uses[pack] for pack in order), size, bound)


def checked_choices(
    max_sequence_length: int, max_sequences_per_pack: Union[int, str], algorithm: str
) -> Tuple[int, int]:
    """Tokens and sequences of a pack at most.

    Raises:
        UserError: as :func:`plan_packing`.
    """
    size = _whole("max_sequence_length", max_sequence_length, 1)
    if algorithm not in ALGORITHMS:
        raise UserError(f"algorithm {algorithm!r}: not known; use one of {', '.join(ALGORITHMS)}")
    if isinstance(max_sequences_per_pack, str) and max_sequences_per_pack == UNLIMITED:
        return size, size
    return size, min(size, _whole("max_sequences_per_pack", max_sequences_per_pack, 1, f", or {UNLIMITED}"))


def _checked_counts(counts: Sequence[int], size: int) -> List[int]:
    """The histogram as Python's integers, which never overflow, with an entry for each of ``size`` lengths."""
    try:
        values = counts.tolist() if hasattr(counts, "tolist") else list(counts)
        numbers = [operator.index(int(value) if value == int(value) else value) for value in values]
    except (TypeError, ValueError, OverflowError):
        raise UserError(
            "counts: not whole numbers in one row; counts[i] is the number of sequences of length i + 1"
        ) from None
    if min(numbers, default=0) < 0:
        place = next(place for place, number in enumerate(numbers) if number < 0)
        raise UserError(f"counts[{place}] is {numbers[place]}: not a number of sequences; give 0 or more")
    if any(numbers[size:]):
        longest = max(length for length, number in enumerate(numbers, 1) if number)
        raise UserError(
            f"counts: {sum(numbers[size:]):,} sequences are longer than max_sequence_length {size}; "
            f"set it to {longest} or more, or cut the sequences"
        )
    return (numbers + [0] * size)[:size]


def _whole(name: str, value: object, least: int, besides: str = "") -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise UserError(f"{name} is {value!r}: must be a whole number of at least {least}{besides}")
    return number


def _verify(uses: Dict[Pack, int], counts: List[int], limit: int) -> None:
    """A plan that loses or doubles a sequence, or overfills a pack, is an error of the algorithm: never hand it out."""
    placed = [0] * len(counts)
    for pack, times in uses.items():
        assert times > 0 and 0 < len(pack) <= limit and sum(pack) <= len(counts), f"{times} packs of {pack}"
        for length in pack:
            placed[length - 1] += times
    assert placed == counts, "a sequence is lost or doubled"
