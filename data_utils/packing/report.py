"""Shows the effect of packing on a data set as a table and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data_utils.packing.plan import PackingPlan
from utilities.errors import UserError
from utilities.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE_NAME = "packing.png"

_SEQUENCES, _PADDED, _PACKED = "#4c72b0", "#bbbbbb", "#dd8452"
_BARS = 64
_KINDS = ("png", "svg", "pdf")
_LABELS = 16  # number of labels that fit under a chart


def before_and_after(plan: PackingPlan, unpacked_max_seq_length: int) -> str:
    """Return the table of rows, tokens and padding before and after packing.

    Example:
        >>> from data_utils.packing import plan_packing
        >>> print(before_and_after(plan_packing([0, 4, 2, 0, 0], 5, 2), 5))
                              before     after
        rows of 5 tokens           6         3
        sequences in a row      1.00      2.00
        real tokens               14        14
        padding tokens            16         1
        efficiency           46.67 %   93.33 %
        padding removed: 15 tokens, 93.8 %; packing factor 2.000
        No plan with at most 2 sequences in a pack has fewer packs.
    """
    packs, sequences, tokens = plan.number_of_packs, plan.number_of_sequences, plan.number_of_tokens
    capacity = sequences * unpacked_max_seq_length, packs * plan.max_sequence_length
    padding = capacity[0] - tokens, capacity[1] - tokens
    sizes = unpacked_max_seq_length, plan.max_sequence_length
    same = sizes[0] == sizes[1]
    rows = [
        ("", "before", "after"),
        (f"rows of {sizes[0]} tokens" if same else "rows", f"{sequences:,}", f"{packs:,}"),
        *([] if same else [("tokens of a row", f"{sizes[0]}", f"{sizes[1]}")]),
        ("sequences in a row", "1.00", f"{plan.packing_factor:.2f}"),
        ("real tokens", f"{tokens:,}", f"{tokens:,}"),
        ("padding tokens", f"{padding[0]:,}", f"{padding[1]:,}"),
        ("efficiency", _percent(tokens, capacity[0], 2), _percent(tokens, capacity[1], 2)),
    ]
    widths = [max(len(row[column]) for row in rows) + 3 * (column > 0) for column in range(3)]
    lines = [f"{label:<{widths[0]}}{old:>{widths[1]}}{new:>{widths[2]}}".rstrip() for label, old, new in rows]
    removed = padding[0] - padding[1]
    lines.append(
        f"padding removed: {removed:,} tokens, {_percent(removed, padding[0], 1)};"
        f" packing factor {plan.packing_factor:.3f}"
    )
    limit = f"with at most {plan.max_sequences_in_a_pack} sequences in a pack"
    more = packs - plan.fewest_packs
    lines.append(
        f"Every plan {limit} has {plan.fewest_packs:,} packs or more; this one {more:,} more than that."
        if more
        else f"No plan {limit} has fewer packs."
    )
    return "\n".join(lines)


def _percent(part: int, whole: int, digits: int) -> str:
    return f"{100 * part / whole if whole else 100:.{digits}f} %"


def check_picture(path: Path) -> str:
    """Return the format of a picture from its suffix; raise a ``UserError`` for an unknown one."""
    kind = path.suffix[1:].lower()
    if kind not in _KINDS:
        raise UserError(f"--picture {path}: use the suffix .{', .'.join(_KINDS[:-1])} or .{_KINDS[-1]}")
    return kind


def draw_packing(plan: PackingPlan, unpacked_max_seq_length: int, path: Path) -> None:
    """Draw lengths of sequences, sizes of packs, and how full rows are before and after; the plan must not be empty."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3, width_ratios=(4, 2, 4))
    repeats = np.array(plan.repeats)
    sizes = np.array([len(pack) for pack in plan.packs])
    lengths = np.bincount(
        [length for pack in plan.packs for length in pack], np.repeat(repeats, sizes), plan.max_sequence_length + 1
    )
    left.bar(np.arange(lengths.size), lengths, width=1.0, color=_SEQUENCES)
    left.set(yscale="log", xlabel="tokens of a sequence", title=f"{plan.number_of_sequences:,} sequences")

    packs = 100 * np.bincount(sizes, repeats) / repeats.sum()
    middle.bar(np.arange(1, packs.size), packs[1:], color=_PACKED)
    if packs.size <= _LABELS + 1:
        middle.set_xticks(np.arange(1, packs.size))
    middle.set(xlabel="sequences in a pack", ylabel="% of packs", title=f"{plan.number_of_packs:,} packs")

    before = np.arange(lengths.size) / unpacked_max_seq_length
    after = np.array([sum(pack) for pack in plan.packs]) / plan.max_sequence_length
    _draw_fills(right, before, lengths, "before", _PADDED)
    _draw_fills(right, after, repeats, "after", _PACKED)
    filled = 100 * plan.number_of_tokens / (plan.number_of_sequences * unpacked_max_seq_length)
    right.set(yscale="log", xlabel="real tokens, % of a row", ylabel="% of rows")
    right.set_title(f"efficiency {filled:.2f} % → {100 * plan.efficiency:.2f} %")
    right.yaxis.set_major_formatter("{x:g}")
    right.legend(loc="upper left")

    with replacing(path) as stream:
        figure.savefig(stream, format=check_picture(path), dpi=120)


def _draw_fills(axes: Axes, filled: np.ndarray, rows: np.ndarray, label: str, colour: str) -> None:
    shares = 100 * rows / rows.sum()
    edges = np.linspace(0, 100, _BARS + 1).tolist()
    axes.hist(100 * filled, edges, weights=shares, label=label, color=colour, alpha=0.8)
