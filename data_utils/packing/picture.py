"""Draws the effect of packing on a data set: ``--picture`` of the command."""

from __future__ import annotations

import argparse
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


def add_picture_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--picture", type=Path, metavar="FILE", help=f"png, svg or pdf (default: DIR/{PICTURE_NAME})")
    parser.add_argument("--no-picture", action="store_true", help="draw no picture")


def check_picture(options: argparse.Namespace) -> None:
    """Refuse a picture that cannot be drawn, before the work and not after."""
    picture = options.picture
    if picture is not None and not options.no_picture:
        _kind(picture)
        if not picture.absolute().parent.is_dir() and picture.parent != options.output:  # which is made
            raise UserError(f"--picture {picture}: there is no folder {picture.parent}; make it, or name another")


def _kind(path: Path) -> str:
    kind = path.suffix[1:].lower()
    if kind not in _KINDS:
        raise UserError(f"--picture {path}: use the suffix .{', .'.join(_KINDS[:-1])} or .{_KINDS[-1]}")
    return kind


def draw_picture(options: argparse.Namespace, plan: PackingPlan, unpacked_max_seq_length: int) -> None:
    """Draw the lengths of sequences, the sizes of packs, and how full rows are before and after packing."""
    if options.no_picture:
        return
    path = options.picture or options.output / PICTURE_NAME
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
        figure.savefig(stream, format=_kind(path), dpi=120)
    print(f"picture: {path}")


def _draw_fills(axes: Axes, filled: np.ndarray, rows: np.ndarray, label: str, colour: str) -> None:
    shares = 100 * rows / rows.sum()
    edges = np.linspace(0, 100, _BARS + 1).tolist()
    axes.hist(100 * filled, edges, weights=shares, label=label, color=colour, alpha=0.8)
