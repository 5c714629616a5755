"""Before and after packing, as a picture: the lengths that there are, and how full rows are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data_utils.packing.plan import PackingPlan
from data_utils.records.writer import temporary_beside
from utilities.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE_NAME = "packing.png"

_SEQUENCES, _PADDED, _PACKED = "#4c72b0", "#bbbbbb", "#dd8452"
_BARS = 64
_KINDS = ("png", "svg", "pdf")
_SIZES_NAMED = 16  # so many numbers fit under the chart


def check_picture(path: Path) -> str:
    """The kind of a picture, from its suffix.

    Raises:
        UserError: it is of no kind that can be drawn.
    """
    kind = path.suffix[1:].lower()
    if kind not in _KINDS:
        raise UserError(f"--picture {path}: use the suffix .{', .'.join(_KINDS[:-1])} or .{_KINDS[-1]}")
    return kind


def draw_packing(plan: PackingPlan, unpacked_max_seq_length: int, path: Path) -> None:
    """Draws three charts into a file.

    How many sequences there are of each length; how many sequences packs have; and which share of the rows is filled
    to what degree, before and after.

    Args:
        plan: of the packs, not empty.
        unpacked_max_seq_length: tokens of a record before, padding included.
        path: of the picture; its suffix decides the kind (``.png``, ``.svg``, ``.pdf``).

    Raises:
        UserError: the suffix is not that of a picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3, width_ratios=(4, 2, 4))
    _draw_lengths(left, plan)
    _draw_sizes(middle, plan)
    _draw_fills(right, plan, unpacked_max_seq_length)
    temporary = temporary_beside(path)
    figure.savefig(temporary, format=check_picture(path), dpi=120)
    temporary.replace(path)


def _draw_lengths(axes: Axes, plan: PackingPlan) -> None:
    counts = _lengths(plan)
    axes.bar(np.arange(1, counts.size + 1), counts, width=1.0, color=_SEQUENCES)
    axes.set_yscale("log")
    axes.set_xlabel("tokens of a sequence")
    axes.set_title(f"{plan.number_of_sequences:,} sequences")


def _draw_sizes(axes: Axes, plan: PackingPlan) -> None:
    packs = np.zeros(plan.max_sequences_in_a_pack + 1, np.int64)
    for pack, times in zip(plan.packs, plan.repeats):
        packs[len(pack)] += times
    sizes = np.arange(1, packs.size)
    axes.bar(sizes, 100 * packs[1:] / packs.sum(), color=_PACKED)
    if sizes.size <= _SIZES_NAMED:
        axes.set_xticks(sizes)
    axes.set_xlabel("sequences in a pack")
    axes.set_ylabel("% of packs")
    axes.set_title(f"{plan.number_of_packs:,} packs")


def _draw_fills(axes: Axes, plan: PackingPlan, unpacked_max_seq_length: int) -> None:
    lengths = _lengths(plan)
    before = np.arange(1, lengths.size + 1) / unpacked_max_seq_length
    after = np.array([sum(pack) for pack in plan.packs]) / plan.max_sequence_length
    for filled, rows, label, colour in (
        (before, lengths, "before", _PADDED),
        (after, np.array(plan.repeats), "after", _PACKED),
    ):
        shares = 100 * rows / rows.sum()
        axes.hist(100 * filled, np.linspace(0, 100, _BARS + 1), weights=shares, label=label, color=colour, alpha=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("real tokens, % of a row")
    axes.set_ylabel("% of rows")
    room = plan.number_of_sequences * unpacked_max_seq_length
    axes.set_title(f"efficiency {100 * plan.number_of_tokens / room:.2f} % → {100 * plan.efficiency:.2f} %")
    axes.legend(loc="upper left")


def _lengths(plan: PackingPlan) -> np.ndarray:
    """``(S,)`` sequences of length i + 1."""
    counts = np.zeros(plan.max_sequence_length, np.int64)
    for pack, times in zip(plan.packs, plan.repeats):
        for length in pack:
            counts[length - 1] += times
    return counts
