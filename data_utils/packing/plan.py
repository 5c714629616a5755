"""Chooses which sequence lengths share a pack, by any of the algorithms, and stores the plan in a file."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Sequence, Tuple, Union

from data_utils.packing.heuristics import Pack, longest_first
from data_utils.packing.solvers import PLANNERS  # room: planners
from utilities.errors import UserError
from utilities.files import write_atomically

if TYPE_CHECKING:
    import numpy as np

# Takes the numbers of sequences, the most of them in a pack, and a bound on the number of packs; returns how often each
# pack is used, and the bound or a higher one.
Planner = Callable[[Sequence[int], int, int], Tuple[Dict[Pack, int], int]]

ALGORITHMS: Dict[str, Planner] = {
    "spfhp": lambda counts, most, bound: (longest_first(counts, most, prefer_full=False), bound),
    "lpfhp": lambda counts, most, bound: (longest_first(counts, most, prefer_full=True), bound),
    **PLANNERS,  # room: planners
}
DEFAULT_ALGORITHM = list(ALGORITHMS)[-1]  # which packs tightest
UNLIMITED = "max"
PLAN_NAME = "packing_plan.json"


@dataclass(frozen=True)
class PackingPlan:
    """Which lengths share a pack, and how often; ``assignment.py`` then chooses records of these lengths.

    No plan for these sequences can have less than ``fewest_packs``, by the numbers of tokens and sequences, or as the
    algorithm has proven.
    """

    packs: Tuple[Pack, ...]  # different ones, the most used first; each is the lengths of its sequences, longest first
    repeats: Tuple[int, ...]
    max_sequence_length: int  # tokens in a pack, padding included
    fewest_packs: int

    @property
    def number_of_packs(self) -> int:
        return sum(self.repeats)

    @property
    def number_of_sequences(self) -> int:
        return sum(times * len(pack) for pack, times in zip(self.packs, self.repeats))

    @property
    def number_of_tokens(self) -> int:
        """The number of tokens of all sequences, without padding."""
        return sum(times * sum(pack) for pack, times in zip(self.packs, self.repeats))

    @property
    def max_sequences_in_a_pack(self) -> int:
        return max((len(pack) for pack in self.packs), default=0)

    @property
    def efficiency(self) -> float:
        """The share of real tokens among all tokens of the packs, 0 to 1; 1 for an empty plan."""
        capacity = self.number_of_packs * self.max_sequence_length
        return self.number_of_tokens / capacity if capacity else 1.0

    @property
    def packing_factor(self) -> float:
        """The average number of sequences in a pack; 1 for an empty plan."""
        return self.number_of_sequences / self.number_of_packs if self.packs else 1.0


def plan_packing(
    counts: Union[Sequence[int], np.ndarray],
    max_sequence_length: int,
    max_sequences_per_pack: Union[int, str] = 3,
    algorithm: str = DEFAULT_ALGORITHM,
) -> PackingPlan:
    """Decide which lengths share a pack.

    Args:
        counts: ``counts[i]`` sequences of length i + 1; a sequence or an array of whole numbers.
        max_sequences_per_pack: ``"max"`` for as many as fit.
        algorithm: one of ``ALGORITHMS``: ``spfhp`` and ``lpfhp`` as published (arXiv 2107.02027).

    Example:
        >>> plan = plan_packing([0, 4, 2, 0], max_sequence_length=5, max_sequences_per_pack=2)  # 4 of 2, 2 of 3 tokens
        >>> dict(zip(plan.packs, plan.repeats)), plan.efficiency
        ({(3, 2): 2, (2, 2): 1}, 0.9333333333333333)
    """
    size = max_sequence_length
    limit = size if max_sequences_per_pack == UNLIMITED else min(int(max_sequences_per_pack), size)
    numbers = [int(number) for number in counts]  # Python's integers, which never overflow
    assert limit > 0 and not any(numbers[size:]), "packs are shorter than a sequence"
    numbers = (numbers + [0] * size)[:size]
    if not any(numbers):
        return PackingPlan((), (), size, 0)
    tokens = sum(length * number for length, number in enumerate(numbers, 1))
    bound = max(-(-tokens // size), -(-sum(numbers) // limit))
    uses, bound = _planned(algorithm, tuple(numbers), limit, bound)
    order = sorted(uses, key=lambda pack: (-uses[pack], pack))
    return PackingPlan(tuple(order), tuple(uses[pack] for pack in order), size, bound)


@functools.lru_cache(maxsize=1)  # the rows of a run are fitted to the packs that it then makes
def _planned(algorithm: str, counts: Tuple[int, ...], limit: int, bound: int) -> Tuple[Dict[Pack, int], int]:
    uses, bound = ALGORITHMS[algorithm](counts, limit, bound)
    _verify(uses, counts, limit)
    return uses, bound


def _verify(uses: Dict[Pack, int], counts: Tuple[int, ...], limit: int) -> None:
    """Assert that the algorithm has lost or doubled no sequence and overfilled no pack."""
    placed = [0] * len(counts)
    for pack, times in uses.items():
        assert times > 0 and 0 < len(pack) <= limit and sum(pack) <= len(counts), f"{times} packs of {pack}"
        for length in pack:
            placed[length - 1] += times
    assert tuple(placed) == counts, "a sequence is lost or doubled"


def write_plan(folder: Path, plan: PackingPlan) -> None:
    """Write ``packing_plan.json``; each line has the number of uses of a pack and the lengths of its sequences."""
    packs = ",\n    ".join(json.dumps([times, list(pack)]) for pack, times in zip(plan.packs, plan.repeats))
    text = (
        f'{{\n  "max_sequence_length": {plan.max_sequence_length},\n  "fewest_packs": {plan.fewest_packs},\n'
        f'  "packs": [\n    {packs}\n  ]\n}}\n'
    )
    write_atomically(folder / PLAN_NAME, text)


def read_plan(folder: Path) -> PackingPlan:
    """Read the plan of a folder of packs; raise a ``UserError`` if that is not possible."""
    path = folder / PLAN_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return PackingPlan(
            packs=tuple(tuple(lengths) for _, lengths in content["packs"]),
            repeats=tuple(times for times, _ in content["packs"]),
            max_sequence_length=content["max_sequence_length"],
            fewest_packs=content["fewest_packs"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: cannot be read as a plan ({error}); pack the data set again") from error
