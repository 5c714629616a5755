"""Figures as Markdown tables whose columns line up on a terminal too."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import Any

from benchmarks.figures import FIRST_STEP, MEMORY, OTHERS, SPEED, Figures, targets
from benchmarks.jobs import (
    COMPETITORS,
    GEMM,
    GENERATED,
    MASKED_POSITIONS,
    MICRO_BATCH,
    OURS,
    SEQUENCE_LENGTH,
    TENSORFLOW_FIT,
    TENSORFLOW_FUNCTION,
    VOCABULARY,
)

NOTHING = "–"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its header, the first column is text and the others are numbers."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(row: Sequence[str]) -> str:
        first, *others = (cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths)))
        return f"| {' | '.join([first, *others])} |"

    rule = f"| {'-' * widths[0]} |" + "".join(f" {'-' * (width - 1)}: |" for width in widths[1:])
    return "\n".join([line(rows[0]), rule, *(line(row) for row in rows[1:])])


def report(
    figures: Figures, sizes: Sequence[str], competitors: Sequence[str], facts: dict[str, Any], rounds: int
) -> str:
    """Everything that a run of the benchmark found."""
    trained = [name for name in competitors if name != GEMM]
    parts = [
        machine(facts),
        f"BERT pre-training with dropout and AdamW in float32: sequence {SEQUENCE_LENGTH},"
        f" {MASKED_POSITIONS} predictions, micro batch {MICRO_BATCH}, vocabulary {VOCABULARY:,}."
        f" Each figure is the median of {rounds} processes, run in alternation; ratios are taken"
        " within a round.",
        values("samples/s", figures, sizes, trained, SPEED, "{:.2f}"),
    ]
    if OURS in competitors:
        parts += [ratios(figures, sizes, competitors), limit(figures, sizes)]
    parts += [
        values("peak memory of the process, MiB", figures, sizes, trained, MEMORY, "{:,.0f}"),
        values("start of the process to first step done, s", figures, sizes, trained, FIRST_STEP, "{:.1f}"),
    ]
    if OURS in competitors:
        parts.append(target_table(figures, sizes))
    return "\n\n".join(parts)


def machine(facts: dict[str, Any]) -> str:
    """One line."""
    versions = [f"{name} {version}" for name, version in facts["packages"].items()]
    return (
        f"{facts['cpu']}, {facts['cpu_cores_usable']} cores ({', '.join(facts['cpu_instruction_sets'])}),"
        f" {facts['memory_gib']} GiB, Python {facts['python']}, {', '.join(versions)}"
    )


def with_pytorch(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts with the version of PyTorch, where installed: only benchmarks use it."""
    try:
        return {**facts, "packages": {**facts["packages"], "torch": importlib.metadata.version("torch")}}
    except importlib.metadata.PackageNotFoundError:
        return facts


def values(title: str, figures: Figures, sizes: Sequence[str], competitors: Sequence[str], name: str, form: str) -> str:
    """One row for each competitor."""
    rows = [[title, *sizes]]
    for competitor in competitors:
        cells = [cell(figures.median(competitor, size, name), form) for size in sizes]
        rows.append([COMPETITORS[competitor].title, *cells])
    return markdown(rows)


def ratios(figures: Figures, sizes: Sequence[str], competitors: Sequence[str]) -> str:
    """How many times faster this project is."""
    rows = [["this project is faster than", *sizes]]
    both = (TENSORFLOW_FIT, TENSORFLOW_FUNCTION)
    if set(both) <= set(competitors):
        best = [cell(figures.ratio_to_best(both, size), "{:.2f} ×") for size in sizes]
        rows.append(["HF TensorFlow, the better of both", *best])
    for competitor in (*OTHERS, GENERATED):
        if competitor in competitors:
            cells = [cell(figures.ratio(competitor, size), "{:.2f} ×") for size in sizes]
            rows.append([COMPETITORS[competitor].title, *cells])
    return markdown(rows)


def limit(figures: Figures, sizes: Sequence[str]) -> str:
    """Model operations beside the machine's matrix products."""
    return markdown(
        [
            ["GFLOP/s", *sizes],
            [
                "this project, operations of the model",
                *(cell(figures.gflops(OURS, s), "{:.0f}") for s in sizes),
            ],
            ["matrix products alone", *(cell(figures.median(GEMM, s, "gflops"), "{:.0f}") for s in sizes)],
            ["share", *(cell(figures.gemm_share(size), "{:.0%}") for size in sizes)],
        ]
    )


def target_table(figures: Figures, sizes: Sequence[str]) -> str:
    """What was to be reached, and whether it was."""
    words = {True: "reached", False: "NOT reached", None: "not measured"}
    rows = [["target", "size", "wanted", "found", ""]]
    for target in targets(sizes):
        wanted = f"{'at least' if target.at_least else 'below'} {target.form.format(target.bound)}"
        found = cell(target.of(figures), target.form)
        rows.append([target.name, target.size, wanted, found, words[target.reached(figures)]])
    return markdown(rows)


def cell(value: float | None, form: str) -> str:
    """A number, or a dash where it was not measured."""
    return NOTHING if value is None else form.format(value)
