"""A diagnosis as text, and as a picture."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from data_utils.doctor.diagnosis import Diagnosis
from data_utils.doctor.measures import Share
from data_utils.doctor.opening import DataSet

HISTOGRAM_ROWS = 8
BAR_WIDTH = 32
BLOCK = "█"
MUCH_MORE = 20


def as_text(data: DataSet, found: Diagnosis) -> str:
    """The diagnosis for a terminal."""
    parts = [_head(data, found), _figures(data, found), _histogram(found)]
    if found.lines is not None and found.lines.frequent:
        parts.append("lines that stand there most often:")
        parts[-1] += "".join(f"\n  {times:>8,} ×  {line}" for line, times in found.lines.frequent)
    if found.problems:
        parts.append("bad records:" + "".join(f"\n  {p.file}, record {p.record} {p.reason}" for p in found.problems))
    return "\n\n".join([part for part in parts if part] + [_verdict(data, found)])


def _head(data: DataSet, found: Diagnosis) -> str:
    form = data.form
    what = f"packs of up to {form.max_sequences} sequences" if form.is_packed else "sequences"
    return (
        f"{data.folder}: {found.records:,} records in {len(data.files):,} files; {what}, {form.max_seq_length} tokens,"
        f" {form.max_predictions} predictions"
        + (f", vocabulary of {form.vocabulary_size:,}" if form.vocabulary_size else "")
    )


def _figures(data: DataSet, found: Diagnosis) -> str:
    counts = found.counts
    rows = [
        ("good records", f"{counts.records:,}", f"of {found.records:,}"),
        ("tokens", f"{counts.tokens:,}", f"{counts.tokens / max(1, counts.sequences):.1f} a sequence"),
        ("tokens to predict", *_cells(found.mask_rate)),
    ]
    if found.masking is not None:
        rows += [
            ("  shown as [MASK]", *_cells(found.masking.masked)),
            ("  shown as another piece", *_cells(found.masking.replaced)),
            ("  shown as they are", *_cells(found.masking.kept)),
        ]
    rows.append(("random next sentences", *_cells(found.next_sentence)))
    if found.unknown is not None:
        rows.append(("pieces that are [UNK]", f"{found.unknown:.3%}", ""))
    rows.append(("records that are copies", f"{found.copies:.2%}", ""))
    rows.append(("  of the same text", f"{found.same_text:.2%}", "masked in another way, or a copy"))
    if found.lines is not None:
        rows.append(("repeated lines of the corpus", f"{found.lines.repeated:.2%}", f"of {found.lines.lines:,}"))
    if found.packing is not None:
        text = f"{found.packing.efficiency_before:.1%} → {found.packing.efficiency:.1%} real tokens"
        rows.append(("packing would give", f"× {found.packing.factor:.2f}", text))
    width, number = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    return "\n".join(f"{name:<{width}}  {value:>{number}}  {note}".rstrip() for name, value, note in rows)


def _cells(value: Share) -> tuple[str, str]:
    if value.expected is None:
        return f"{value.found:.2%}", ""
    return f"{value.found:.2%}", f"{value.expected:.1%} expected" + (" ← wrong" if value.is_off else "")


def _histogram(found: Diagnosis) -> str:
    lengths = found.counts.lengths
    longest = lengths.size - 1
    if not found.counts.sequences:
        return ""
    edges = np.unique(np.linspace(0, longest, min(HISTOGRAM_ROWS, longest) + 1).astype(int))
    sums = [int(lengths[low + 1 : high + 1].sum()) for low, high in itertools.pairwise(edges)]
    rows = []
    for low, high, number in zip(edges, edges[1:], sums):
        bar = BLOCK * round(BAR_WIDTH * number / max(sums))
        rows.append(f"  {low + 1:>4} to {high:>4}  {bar:<{BAR_WIDTH}} {number / sum(sums):6.1%}")
    return "lengths of sequences, in tokens:\n" + "\n".join(rows)


def _verdict(data: DataSet, found: Diagnosis) -> str:
    notes = "".join(f"\n  - {note}" for note in found.notes)
    if found.is_well:
        return "The data set is well." + notes
    wrong = "".join(f"\n  - {text}" for text in found.wrong)
    mend = ""
    if found.bad and found.counts.records:
        mend = f"\nThe good records alone: python -m data_utils.doctor {data.folder} --fix OTHER"
    return f"Something is wrong:{wrong}{mend}" + (f"\nWorth knowing:{notes}" if notes else "")


def draw(data: DataSet, found: Diagnosis, path: Path) -> None:
    """Writes the picture: lengths, predictions, what is shown, and the next sentences."""
    from matplotlib.figure import Figure  # not pyplot: no window, no state

    figure = Figure(figsize=(11, 7), layout="constrained")
    figure.suptitle(
        f"{data.folder.name}: {found.records:,} records" + ("" if found.is_well else " – something is wrong")
    )
    lengths, predictions, masks, sentences = figure.subplots(2, 2).ravel()
    _bars(lengths, found.counts.lengths, "tokens of a sequence", "sequences")
    per = "pack" if data.form.is_packed else "sequence"
    _bars(predictions, found.counts.predictions_per_record, f"tokens to predict in a {per}", "records")
    if found.masking is not None:
        names = ("[MASK]", "another\npiece", "itself")
        _shares(masks, names, list(found.masking), "what stands for a token to predict")
    else:
        masks.set_axis_off()
        masks.text(0.5, 0.5, "the vocabulary is not known", ha="center")
    random, expected = found.next_sentence.found, found.next_sentence
    follows = expected._replace(found=1 - random)
    _shares(sentences, ("follows", "random"), [follows, expected], "second sentence")
    figure.savefig(path, dpi=110)


def _bars(axes: Any, counts: np.ndarray, name: str, of: str) -> None:
    axes.bar(np.arange(counts.size), counts, width=1.0, color="#4878a8")
    axes.set(xlabel=name, ylabel=of)
    if counts.any() and counts.max() > MUCH_MORE * np.median(counts[counts > 0]):
        axes.set_yscale("log")  # the others would not be seen beside the highest
    axes.spines[["top", "right"]].set_visible(False)


def _shares(axes: Any, names: tuple[str, ...], shares: list[Share], title: str) -> None:
    colors = ["#b0413e" if value.is_off else "#4878a8" for value in shares]
    bars = axes.bar(names, [value.found for value in shares], color=colors)
    axes.bar_label(bars, [f"{value.found:.1%}" for value in shares])
    for place, value in enumerate(shares):
        if value.expected is not None:
            axes.hlines(value.expected, place - 0.4, place + 0.4, color="black", linestyle="--", linewidth=1)
    axes.set(title=title, ylim=(0, 1))
    axes.title.set_fontsize(10)
    axes.spines[["top", "right"]].set_visible(False)
