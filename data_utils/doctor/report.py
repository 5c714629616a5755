"""Writes a diagnosis as text and as a picture."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from data_utils.doctor.findings import Diagnosis, Share
from data_utils.doctor.records import DataSet

HISTOGRAM_ROWS, BAR_WIDTH = 8, 32
HIGH_BAR = 20  # a bar this many times as high as the others' median would hide them


def as_text(data: DataSet, found: Diagnosis) -> str:
    """Return the diagnosis as text for a terminal."""
    parts = [_title(data, found), _figures(found), _histogram(found.counts.lengths)]
    if found.lines is not None and found.lines.frequent:
        lines = (f"\n  {times:>8,} ×  {line}" for line, times in found.lines.frequent)
        parts.append("the most frequent lines:" + "".join(lines))
    if found.problems:
        records = (
            f"\n  {problem['file']}, record {problem['record']} {problem['reason']}" for problem in found.problems
        )
        parts.append("bad records:" + "".join(records))
    verdict = "The data set is fine."
    if found.wrong:
        verdict = "Something is wrong:" + "".join(f"\n  - {text}" for text in found.wrong)
        if found.bad and found.counts.records:
            verdict += f"\nTo keep the good records alone: python -m data_utils.doctor {data.folder} --fix OTHER"
        verdict += "\nWorth knowing:" if found.notes else ""
    parts.append(verdict + "".join(f"\n  - {note}" for note in found.notes))
    return "\n\n".join(part for part in parts if part)


def _title(data: DataSet, found: Diagnosis) -> str:
    form = data.form
    what = f"packs of up to {form.max_sequences} sequences" if form.max_sequences else "sequences"
    return (
        f"{data.folder}: {found.records:,} records in {len(data.files):,} files; {what}, {form.max_seq_length} tokens,"
        f" {form.max_predictions} predictions" + (f", vocabulary of {data.vocab_size:,}" if data.vocab_size else "")
    )


def _figures(found: Diagnosis) -> str:
    counts, masking = found.counts, found.masking or {}
    labels = {"masked": "  shown as [MASK]", "replaced": "  shown as another piece", "kept": "  shown as they are"}
    rows = [
        ("good records", f"{counts.records:,}", f"of {found.records:,}"),
        ("tokens", f"{counts.tokens:,}", f"{counts.tokens / max(1, counts.sequences):.1f} a sequence"),
        _row("tokens to predict", found.mask_rate),
        *(_row(labels[name], value) for name, value in masking.items()),
        _row("random next sentences", found.next_sentence),
    ]
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


def _row(name: str, share: Share) -> tuple[str, str, str]:
    expected = "" if share.expected is None else f"{share.expected:.1%} expected"
    return name, f"{share.found:.2%}", expected + (" ← wrong" if share.is_off else "")


def _histogram(lengths: np.ndarray) -> str:
    if not lengths.any():
        return ""
    longest = lengths.size - 1
    edges = np.unique(np.linspace(0, longest, min(HISTOGRAM_ROWS, longest) + 1).astype(int))
    sums = [int(lengths[low + 1 : high + 1].sum()) for low, high in itertools.pairwise(edges)]
    rows = []
    for low, high, number in zip(edges, edges[1:], sums):
        bar = "█" * round(BAR_WIDTH * number / max(sums))
        rows.append(f"\n  {low + 1:>4} to {high:>4}  {bar:<{BAR_WIDTH}} {number / sum(sums):6.1%}")
    return "lengths of sequences, in tokens:" + "".join(rows)


def draw(data: DataSet, found: Diagnosis, path: Path) -> None:
    """Draw the lengths, the numbers of predictions, what tokens to predict show, and the next sentences."""
    from matplotlib.figure import Figure  # not pyplot: no window, no state

    figure = Figure(figsize=(11, 7), layout="constrained")
    figure.suptitle(f"{data.folder.name}: {found.records:,} records" + (" – something is wrong" * bool(found.wrong)))
    lengths, predictions, masks, sentences = figure.subplots(2, 2).ravel()
    _bars(lengths, found.counts.lengths, "tokens of a sequence", "sequences")
    row = "pack" if data.form.max_sequences else "sequence"
    _bars(predictions, found.counts.predictions_per_record, f"tokens to predict in a {row}", "records")
    if found.masking is not None:
        names = ("[MASK]", "another\npiece", "itself")
        _shares(masks, dict(zip(names, found.masking.values())), "what a token to predict shows")
    else:
        masks.set_axis_off()
        masks.text(0.5, 0.5, "the vocabulary is not known", ha="center")
    random = found.next_sentence
    follows = Share(1 - random.found, random.expected, random.cases, random.tolerance)
    _shares(sentences, {"follows": follows, "random": random}, "second sentence")
    figure.savefig(path, dpi=110)


def _bars(axes: Any, counts: np.ndarray, name: str, of: str) -> None:
    axes.bar(np.arange(counts.size), counts, width=1.0, color="#4878a8")
    axes.set(xlabel=name, ylabel=of)
    if counts.any() and counts.max() > HIGH_BAR * np.median(counts[counts > 0]):
        axes.set_yscale("log")


def _shares(axes: Any, shares: dict[str, Share], title: str) -> None:
    colors = ["#b0413e" if share.is_off else "#4878a8" for share in shares.values()]
    bars = axes.bar(list(shares), [share.found for share in shares.values()], color=colors)
    axes.bar_label(bars, [f"{share.found:.1%}" for share in shares.values()])
    for place, share in enumerate(shares.values()):
        axes.hlines(share.expected, place - 0.4, place + 0.4, color="black", linestyle="--", linewidth=1)
    axes.set(title=title, ylim=(0, 1))
