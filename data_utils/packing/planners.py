"""The planners that choose among all possible packs; they load SciPy, so only when they are called."""

from __future__ import annotations

from typing import Dict, Sequence, Tuple

from data_utils.packing.heuristics import Pack


def nnlshp(counts: Sequence[int], max_sequences: int, bound: int) -> Tuple[Dict[Pack, int], int]:
    """Plan as :func:`data_utils.packing.solvers.nnlshp`, which proves no bound."""
    from data_utils.packing import solvers

    return solvers.nnlshp(counts, max_sequences), bound


def optimal(counts: Sequence[int], max_sequences: int, bound: int) -> Tuple[Dict[Pack, int], int]:
    """Plan as :func:`data_utils.packing.solvers.optimal`."""
    from data_utils.packing import solvers

    return solvers.optimal(counts, max_sequences, bound)


PLANNERS = {"nnlshp": nnlshp, "optimal": optimal}
