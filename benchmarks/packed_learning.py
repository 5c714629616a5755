"""Do packs teach what their sequences teach? ``python -m benchmarks.packed_learning``.

Pre-trains BERT-tiny twice on the same sequences through the product's own commands: one padded sequence a row, and
packs with as many sequences in a weight update. Prints both losses against sequences seen.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.commands import REPOSITORY, command
from tests.real_data import real_data_root
from utilities.errors import UserError

CONFIGS = [
    REPOSITORY / "configs" / name
    for name in ("pretraining/pretrain_tiny_128_phase1.json", "systems/pretraining_cpu.json")
]
REAL_TEXT = "wikipedia_en/AA"  # as WikiExtractor writes it, a megabyte a file
REAL_FILES = 8
SEQUENCES_PER_UPDATE, MICRO_BATCHES = 64, 2
PACK_LENGTH, PLACES = 256, 6  # tokens and sequences of a pack at most; a sequence has up to 128 tokens
LIMIT = 0.01
VOCABULARY = 8192
WINDOWS = 10  # of the sequences seen, in which losses are compared
LOSSES = ("mlm_loss", "nsp_loss")


@dataclass(frozen=True)
class Curve:
    """The training loss of a run.

    Attributes:
        samples: sequences seen at the end of each logging period.
        losses: mean of the sum of both losses in each period.
    """

    samples: np.ndarray
    losses: np.ndarray

    def within(self, begin: float, end: float) -> float:
        """Mean loss between two numbers of sequences seen."""
        starts = np.append(0, self.samples[:-1])
        shares = np.clip(np.minimum(self.samples, end) - np.maximum(starts, begin), 0, None)
        return float((shares * self.losses).sum() / shares.sum())


@dataclass(frozen=True)
class Comparison:
    """Losses of both runs in equal windows of sequences seen.

    Attributes:
        ends: sequences seen at the end of each window.
    """

    ends: list[float]
    padded: list[float]
    packed: list[float]

    @property
    def deviations(self) -> list[float]:
        """Relative, of each window."""
        return [abs(b / a - 1) for a, b in zip(self.padded, self.packed)]


def compare(padded: Curve, packed: Curve, windows: int = WINDOWS) -> Comparison:
    """Over what both runs have seen."""
    bounds = np.linspace(0, min(padded.samples[-1], packed.samples[-1]), windows + 1)
    pairs = list(pairwise(bounds))
    means = [[curve.within(*pair) for pair in pairs] for curve in (padded, packed)]
    return Comparison([float(end) for _, end in pairs], *means)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packed_learning", description=__doc__)
    parser.add_argument(
        "--wikiextractor", type=Path, metavar="DIR", help="text; default: English Wikipedia where the tests have it"
    )
    parser.add_argument("--sequences", type=int, default=25600, help="to train on (default %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="at its peak (default %(default)s)")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep data and runs here; default: a temporary folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write both curves")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw both curves")
    return parser.parse_args(arguments)


def prepare(text: Path, folder: Path) -> float:
    """The same sequences one by one and, in ``packed``, in packs; of all lengths up to 128 tokens.

    Returns:
        sequences in a pack on average.
    """
    command(
        *("-m", "data_utils.text", "--wikiextractor", text, "--output", folder),
        *("--vocab-size", VOCABULARY, "--short-seq-prob", 1.0, "--duplicate-factor", 1),
    )
    packs = folder / "packed"
    command(
        *("-m", "data_utils.packing", "--input", folder, "--output", packs),
        *("--max-sequences-per-pack", PLACES, "--max-seq-length", PACK_LENGTH),
    )
    totals = json.loads((packs / "manifest.json").read_text(encoding="utf-8"))["totals"]
    return totals["sequences"] / totals["records"]


def train(options: argparse.Namespace, data: Path, rows: int, runs: Path, name: str, *flags: object) -> Curve:
    """One run; ``rows`` in a weight update."""
    command(
        *("run_pretraining.py", "--config", *CONFIGS, "--dataset-dir", data, "--output-dir", runs, "--name", name),
        *("--total-num-train-samples", options.sequences, "--bert-config.vocab-size", VOCABULARY),
        *("--global-batch.micro-batch-size", rows // MICRO_BATCHES),
        *("--global-batch.grad-acc-steps-per-replica", MICRO_BATCHES, "--global-batches-per-log", 5),
        *("--optimizer-opts.learning-rate.max-learning-rate", options.learning_rate),
        *("--optimizer-opts.learning-rate.warmup-frac", 0.1, *flags),
    )
    lines = (runs / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    periods = [json.loads(line) for line in lines]
    losses = [sum(period["metrics"][loss] for loss in LOSSES) for period in periods]
    return Curve(np.array([period["samples"] for period in periods]), np.array(losses))


def real_text(folder: Path) -> Path:
    """Some files of English Wikipedia."""
    files = sorted((real_data_root() / REAL_TEXT).glob("wiki_*"))[:REAL_FILES]
    if not files:
        raise UserError("there is no text; name a folder that WikiExtractor wrote with --wikiextractor")
    (folder / "AA").mkdir(parents=True, exist_ok=True)
    for file in files:
        link = folder / "AA" / file.name
        if not link.exists():
            link.symlink_to(file)
    return folder


def both(options: argparse.Namespace, text: Path, work: Path) -> tuple[float, Comparison]:
    """Prepare, train twice, compare; and the packing factor."""
    factor = prepare(text, work / "data")
    rows = round(SEQUENCES_PER_UPDATE / factor / MICRO_BATCHES) * MICRO_BATCHES
    padded = train(options, work / "data", SEQUENCES_PER_UPDATE, work / "runs", "padded")
    # The update holds as many sequences as before, so the betas stay.
    packs = ("--max-seq-length", PACK_LENGTH, "--packing.max-sequences-per-pack", PLACES)
    betas = ("--packing.adjust-betas", "false")
    packed = train(options, work / "data" / "packed", rows, work / "runs", "packed", *packs, *betas)
    return factor, compare(padded, packed)


def summary(factor: float, comparison: Comparison) -> str:
    """A table and a verdict."""
    lines = ["| sequences seen | loss, padded | in packs | apart |", "| ---: | ---: | ---: | ---: |"]
    rows = zip(comparison.ends, comparison.padded, comparison.packed, comparison.deviations)
    lines += [f"| {end:,.0f} | {a:.4f} | {b:.4f} | {apart:.2%} |" for end, a, b, apart in rows]
    worst = max(comparison.deviations)
    verdict = "within" if worst <= LIMIT else "NOT within"
    return "\n".join([*lines, f"{factor:.3f} sequences in a pack; at most {worst:.2%} apart: {verdict} {LIMIT:.0%}"])


def draw(comparison: Comparison, path: Path) -> None:
    """Both curves."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(comparison.ends, comparison.padded, linewidth=4, alpha=0.35, label="one padded sequence a row")
    axes.plot(comparison.ends, comparison.packed, linewidth=1.2, marker=".", label="packs")
    axes.set(xlabel="sequences seen", ylabel="loss (nats)")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; status 0 where the losses agree within 1 % everywhere, 1 where they do not."""
    options = parse(arguments)
    try:
        with tempfile.TemporaryDirectory() as temporary:
            work = options.work or Path(temporary)
            factor, comparison = both(options, options.wikiextractor or real_text(work / "text"), work)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(summary(factor, comparison))
    if options.json:
        values = {"packing_factor": factor, **vars(comparison), "largest_deviation": max(comparison.deviations)}
        options.json.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    if options.png:
        draw(comparison, options.png)
    return 0 if max(comparison.deviations) <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
