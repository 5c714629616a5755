"""Dense, static, SET and RigL at equal training FLOPs: ``python -m benchmarks.sparse_pareto``.

Pre-trains BERTs of two widths on English Wikipedia through the product's own command, each with the same number of
model FLOPs, so that a sparse model sees more sequences. Prints the masked-LM loss against FLOPs, with a verdict. What
is counted are FLOPs and not time, so runs go side by side, a thread each. What has been done in ``--work`` is not done
again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measuring
from benchmarks.measuring import Report
from benchmarks.samples import real_text
from benchmarks.sparse_pareto_runs import (
    DENSE,
    METHODS,
    SEQUENCE,
    STATIC,
    UPDATES_PER_LOG,
    VOCABULARY,
    WIDTHS,
    Curve,
    Run,
    sparse_learning_rate,
    train_all,
)
from utilities.errors import UserError

TEXT_FILES = 24  # a megabyte each
POINTS = (0.25, 0.5, 0.75, 1.0)  # of the FLOPs, at which losses are printed
WINDOW = 0.1  # of the FLOPs, over which a loss is a mean
HIDDEN = 0.04  # of the FLOPs, at the begin, where all losses fall from ln(vocabulary): left out of the picture


ARGUMENTS: dict[str, dict[str, Any]] = {
    "--wikiextractor": {"type": Path, "metavar": "DIR", "help": "text; None: real data's Wikipedia"},
    "--dataset": {"type": Path, "metavar": "DIR", "help": f"records of {SEQUENCE} tokens, {VOCABULARY:,} word pieces"},
    "--flops": {"type": float, "default": 8e12, "help": "of each run"},
    "--ratio": {"type": float, "default": 0.9, "help": "share of the blocks that is absent"},
    "--block-size": {"type": int, "default": 16, "help": "rows and columns of a block"},
    "--interval": {"type": int, "default": 44, "help": "updates between changes of the pattern, as 160 over phase 1"},
    "--learning-rates": {"type": float, "nargs": "+", "default": [1e-3], "help": "of dense models; the best counts"},
    "--sparse-learning-rates": {"type": float, "nargs": "+", "help": "None: the dense ones by the published rule"},
    "--widths": {"nargs": "+", "choices": list(WIDTHS), "default": list(WIDTHS), "help": "of the models"},
    "--methods": {"nargs": "+", "choices": METHODS, "default": list(METHODS), "help": "to be compared"},
    "--seed": {"type": int, "default": 1984, "help": "of the runs"},
    "--jobs": {"type": int, "default": measuring.cores(), "help": "runs at a time"},
    "--threads": {"type": int, "default": 1, "help": "of each run"},
    "--work": {"type": Path, "metavar": "DIR", "help": "keep data and runs here; None: a temporary folder"},
    "--picture": {"type": Path, "metavar": "FILE", "help": "draw all curves (.svg, .png)"},
}


def prepare(text: Path | None, work: Path) -> Path:
    """Make records of ``text``, by default of English Wikipedia, and return their folder; earlier ones are kept."""
    data = work / "data"
    if (data / "manifest.json").exists():
        return data
    text = text or real_text(work / "text", TEXT_FILES)
    measuring.require([], [text])
    measuring.command(
        *("-m", "data_utils.text", "--wikiextractor", text, "--output", data),
        *("--vocab-size", VOCABULARY, "--duplicate-factor", 1),
    )
    return data


def runs_of(options: argparse.Namespace, data: Path) -> list[Run]:
    """Return all runs, the longest ones, which are sparse, first, so that none is left alone at the end."""
    published = [sparse_learning_rate(rate, options.ratio) for rate in options.learning_rates]
    rates = dict.fromkeys(METHODS, options.sparse_learning_rates or published) | {DENSE: options.learning_rates}
    fixed = (options.flops, options.ratio, options.block_size, options.interval, options.seed, str(data))
    runs = [
        Run(width, method, rate, *fixed)
        for width in options.widths
        for method in options.methods
        for rate in rates[method]
    ]
    return sorted(runs, key=lambda run: run.method == DENSE)


def best_of(curves: dict[Run, Curve], budget: float) -> dict[Run, Curve]:
    """Return the run of each width and method whose last loss is lowest, in the order of widths and methods."""
    best: dict[tuple[int, int], Run] = {}
    for run in curves:
        key = list(WIDTHS).index(run.width), METHODS.index(run.method)
        if key not in best or losses_at(curves[run], budget)[-1] < losses_at(curves[best[key]], budget)[-1]:
            best[key] = run
    return {best[key]: curves[best[key]] for key in sorted(best)}


def losses_at(curve: Curve, budget: float) -> list[float]:
    """Return the losses at ``POINTS``."""
    last = float(curve.flops[-1])
    return [curve.at(share * last, WINDOW * budget) for share in POINTS]


def summary(curves: dict[Run, Curve], options: argparse.Namespace, data: Path) -> list[str]:
    """Return a table and verdicts."""
    header = ["model", "GFLOPs/sequence", "learning rate", "sequences", *(f"at {p:.0%}" for p in POINTS), "explored"]
    rows = [[*header, "minutes"]]
    best = best_of(curves, options.flops)
    for run, curve in best.items():
        losses = [f"{loss:.3f}" for loss in losses_at(curve, options.flops)]
        facts = [f"{run.per_sequence / 1e9:.3f}", f"{run.learning_rate:g}", f"{curve.sequences:,}"]
        ever = f"{curve.explored:.0%}" if run.method != DENSE else measuring.NOTHING
        rows.append([f"{run.width} {run.method}", *facts, *losses, ever, f"{curve.seconds / 60:.1f}"])
    manifest = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    records = sum(file["records"] for file in manifest["files"])
    b, seen = options.block_size, max(curve.sequences for curve in curves.values()) / records
    about = (
        f"Masked-LM loss in nats at shares of {options.flops:.3g} model FLOPs; {options.ratio:.0%} of the encoder's"
        f" {b}×{b} blocks absent, patterns changed every {options.interval} updates, seed {options.seed}. Training"
        f" losses, means over the last {WINDOW:.0%} of the FLOPs; {options.threads} thread(s) a run."
    )
    lines = verdicts({(run.width, run.method): losses_at(curve, options.flops)[-1] for run, curve in best.items()})
    if manifest.get("unigram_entropy_nats") is not None:
        entropy = manifest["unigram_entropy_nats"]
        lines.append(f"Knowing only how often each word piece occurs gives a loss of {entropy:.3f} nats.")
    if len(curves) > len(best):
        lines.append(f"Of {len(curves)} runs those of the best learning rate.")
    if seen > 1:
        lines.append(f"There are {records:,} sequences, of which some runs saw each up to {np.ceil(seen):.0f} times.")
    return [about, measuring.markdown(rows), "\n".join(lines)]


def verdicts(final: dict[tuple[str, str], float]) -> list[str]:
    """Return what the last losses mean, in words."""
    lines = []
    for width in dict.fromkeys(width for width, _ in final):
        losses = {method: loss for (w, method), loss in final.items() if w == width}
        order = " < ".join(f"{method} {loss:.3f}" for method, loss in sorted(losses.items(), key=lambda item: item[1]))
        lines.append(f"{width}: {order} (lower is better).")
        sparse = {method: loss for method, loss in losses.items() if method != DENSE}
        if DENSE in losses and sparse:
            best = min(sparse, key=lambda method: sparse[method])
            apart = losses[DENSE] - sparse[best]
            word = "better" if apart > 0 else "worse"
            lines.append(f"  Per FLOP the best sparse model, {best}, is {abs(apart):.3f} nats {word} than dense.")
        if STATIC in sparse and len(sparse) > 1:
            moving = min(loss for method, loss in sparse.items() if method != STATIC)
            apart = sparse[STATIC] - moving
            word = "gains" if apart > 0 else "loses"
            lines.append(f"  Changing the pattern {word} {abs(apart):.3f} nats against a static one.")
    return lines


def draw(curves: dict[Run, Curve], budget: float, path: Path) -> None:
    """Draw loss against FLOPs, a panel for each width, smoothed over a twenty-fifth of a run."""
    from matplotlib.figure import Figure

    best = best_of(curves, budget)
    widths = list(dict.fromkeys(run.width for run in best))
    figure = Figure(figsize=(1 + 4 * len(widths), 4), layout="constrained")
    panels = figure.subplots(1, len(widths), sharey=True, squeeze=False)[0]
    colours = dict(zip(METHODS, ("black", "tab:blue", "tab:orange", "tab:green")))
    for run, curve in best.items():
        count = max(1, len(curve.losses) // 25)
        smooth = np.convolve(curve.losses, np.ones(count) / count, "valid")
        flops = np.array(curve.flops[count - 1 :])
        shown = flops > HIDDEN * budget
        label = f"{run.method}, {losses_at(curve, budget)[-1]:.3f}"
        axes = panels[widths.index(run.width)]
        axes.plot(flops[shown] / 1e12, smooth[shown], color=colours[run.method], label=label, linewidth=1.3)
    for width, axes in zip(widths, panels):
        sizes = WIDTHS[width]
        axes.set(title=f"BERT-{width}, {sizes['num_hidden_layers']} × {sizes['hidden_size']}", xlabel="model TFLOPs")
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, title="method, loss at the end", loc="upper right")
    panels[0].set_ylabel("masked-LM loss (nats)")
    figure.savefig(path, dpi=150)


@measuring.benchmark(ARGUMENTS)
def main(options: argparse.Namespace) -> Report:
    if options.interval < UPDATES_PER_LOG:
        raise UserError(f"--interval: a pattern changes after {UPDATES_PER_LOG} updates at the soonest")
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        data = options.dataset.resolve() if options.dataset else prepare(options.wikiextractor, work)
        curves = train_all(runs_of(options, data), work, options.jobs, options.threads)
        parts = summary(curves, options, data)
    if options.picture:
        draw(curves, options.flops, options.picture)
        parts.append(f"picture: {options.picture}")
    return Report(parts, [{**vars(run), "flops": curve.flops, "losses": curve.losses} for run, curve in curves.items()])


if __name__ == "__main__":
    sys.exit(main())
