"""Before and after packing, as a picture: the lengths that there are, and how full rows are."""

from __future__ import annotations

from pathlib import Path
from typing import Tuple

import numpy as np

from data_utils.packing.plan import PackingPlan
from data_utils.records_writer import temporary_beside
from utilities.errors import UserError

PICTURE_NAME = "packing.png"

_SEQUENCES, _PADDED, _PACKED = "#4c72b0", "#bbbbbb", "#dd8452"
_BARS = 64


def draw_packing(plan: PackingPlan, unpacked_max_seq_length: int, path: Path) -> None:
    """Draws two charts into a file.

    Left, how many sequences there are of each length, and how many packs of one, two, … sequences are made of them;
    right, which share of the rows is filled to what degree, before and after.

    Args:
        plan: of the packs, not empty.
        unpacked_max_seq_length: tokens of a record before, padding included.
        path: of the picture; its suffix decides the kind (``.png``, ``.svg``, ``.pdf``).

    Raises:
        UserError: the suffix is not that of a picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    kind = path.suffix[1:].lower()
    if kind not in canvas.get_supported_filetypes():
        raise UserError(f"{path}: {path.suffix or 'no suffix'} is no kind of picture; use .png, .svg or .pdf")
    left, right = figure.subplots(1, 2)
    lengths, fills = _lengths(plan), _fills(plan)

    left.bar(np.arange(1, lengths.size + 1), lengths, width=1.0, color=_SEQUENCES)
    left.set_xlabel("tokens of a sequence")
    left.set_ylabel("sequences")
    left.set_title(f"{plan.number_of_sequences:,} sequences")

    bins = np.linspace(0, 100, _BARS + 1)
    before = 100 * np.arange(1, lengths.size + 1) / unpacked_max_seq_length
    for share, weights, label, colour in (
        (before, lengths, f"before: {plan.number_of_sequences:,} rows", _PADDED),
        (100 * fills[0], fills[1], f"after: {plan.number_of_packs:,} packs", _PACKED),
    ):
        right.hist(share, bins, weights=100 * weights / weights.sum(), label=label, color=colour, alpha=0.8)
    right.set_xlabel("share of a row that is real tokens, %")
    right.set_ylabel("share of the rows, %")
    right.set_yscale("symlog", linthresh=1.0)
    right.set_title(
        f"efficiency {100 * plan.number_of_tokens / (plan.number_of_sequences * unpacked_max_seq_length):.2f} % →"
        f" {100 * plan.efficiency:.2f} %, packing factor {plan.packing_factor:.3f}"
    )
    right.legend(loc="upper left")
    temporary = temporary_beside(path)
    figure.savefig(temporary, format=kind, dpi=120)
    temporary.replace(path)


def _lengths(plan: PackingPlan) -> np.ndarray:
    """``(S,)`` sequences of length i + 1."""
    counts = np.zeros(plan.max_sequence_length, np.int64)
    for pack, times in zip(plan.packs, plan.repeats):
        for length in pack:
            counts[length - 1] += times
    return counts


def _fills(plan: PackingPlan) -> Tuple[np.ndarray, np.ndarray]:
    """For each kind of pack the share of real tokens, and how many packs there are."""
    filled = np.array([sum(pack) for pack in plan.packs]) / plan.max_sequence_length
    return filled, np.array(plan.repeats)
