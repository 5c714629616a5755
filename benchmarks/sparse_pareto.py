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
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import measuring
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

TEXT_FILES = 24  # a megabyte each
POINTS = (0.25, 0.5, 0.75, 1.0)  # of the FLOPs, at which losses are printed
WINDOW = 0.1  # of the FLOPs, over which a loss is a mean
HIDDEN = 0.04  # of the FLOPs, at the begin, where all losses fall from ln(vocabulary): left out of the picture


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = measuring.parser_of("sparse_pareto", __doc__)
    parser.add_argument("--wikiextractor", type=Path, metavar="DIR", help="text; default: real data's Wikipedia")
    parser.add_argument(
        "--dataset",
        type=Path,
        metavar="DIR",
        help=f"records made before, of {SEQUENCE} tokens and {VOCABULARY:,} word pieces",
    )
    parser.add_argument("--flops", type=float, default=8e12, help="of each run (default %(default)g)")
    parser.add_argument("--ratio", type=float, default=0.9, help="share of the blocks that is absent (default 0.9)")
    parser.add_argument("--block-size", type=int, default=16, help="default %(default)s")
    parser.add_argument(
        "--interval",
        type=int,
        default=44,
        help="weight updates between changes of the pattern (default %(default)s, as 160 changes over phase 1 are)",
    )
    parser.add_argument(
        "--learning-rates",
        type=float,
        nargs="+",
        default=[1e-3],
        help="of dense models; the best counts (default 1e-3)",
    )
    parser.add_argument(
        "--sparse-learning-rates", type=float, nargs="+", help="default: those of dense ones by the published rule"
    )
    parser.add_argument("--widths", nargs="+", choices=list(WIDTHS), default=list(WIDTHS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seed", type=int, default=1984, help="default %(default)s")
    parser.add_argument(
        "--jobs", type=int, default=measuring.cores(), help="runs at a time (default: %(default)s, all cores)"
    )
    parser.add_argument("--threads", type=int, default=1, help="of each run (default 1)")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep data and runs here; default: a temporary folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all curves")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw all curves (.svg, .png)")
    options = parser.parse_args(arguments)
    if options.interval < UPDATES_PER_LOG:
        parser.error(f"--interval: a pattern changes after {UPDATES_PER_LOG} updates at the soonest")
    if not options.sparse_learning_rates:
        rates = [sparse_learning_rate(rate, options.ratio) for rate in options.learning_rates]
        options.sparse_learning_rates = rates
    return options


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
    rates = dict.fromkeys(METHODS, options.sparse_learning_rates) | {DENSE: options.learning_rates}
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


def records_of(data: Path) -> int:
    """Return the number of sequences in a data set."""
    manifest = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    return sum(file["records"] for file in manifest["files"])


def summary(curves: dict[Run, Curve], options: argparse.Namespace, records: int) -> str:
    """Return a table and verdicts."""
    header = ["model", "GFLOPs/sequence", "learning rate", "sequences", *(f"at {p:.0%}" for p in POINTS), "explored"]
    rows = [[*header, "minutes"]]
    best = best_of(curves, options.flops)
    for run, curve in best.items():
        losses = [f"{loss:.3f}" for loss in losses_at(curve, options.flops)]
        facts = [f"{run.per_sequence / 1e9:.3f}", f"{run.learning_rate:g}", f"{curve.sequences:,}"]
        ever = f"{curve.explored:.0%}" if run.method != DENSE else "–"
        rows.append([f"{run.width} {run.method}", *facts, *losses, ever, f"{curve.seconds / 60:.1f}"])
    b, seen = options.block_size, max(curve.sequences for curve in curves.values()) / records
    lines = [
        f"Masked-LM loss in nats at shares of {options.flops:.3g} model FLOPs; {options.ratio:.0%} of the encoder's"
        f" {b}×{b} blocks absent, patterns changed every {options.interval} updates, seed {options.seed}. Training"
        f" losses, means over the last {WINDOW:.0%} of the FLOPs; {options.threads} thread(s) a run.",
        "",
        measuring.markdown(rows),
        "",
        *verdicts({(run.width, run.method): losses_at(curve, options.flops)[-1] for run, curve in best.items()}),
    ]
    if len(curves) > len(best):
        lines.append(f"Of {len(curves)} runs those of the best learning rate.")
    if seen > 1:
        lines.append(f"There are {records:,} sequences, of which some runs saw each up to {np.ceil(seen):.0f} times.")
    return "\n".join(lines)


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
    if len(final) > 1:
        best = min(final, key=lambda name: final[name])
        lines.append(f"Of all, {' '.join(best)} has the lowest loss for these FLOPs: {final[best]:.3f}.")
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
        flops, shown = curve.flops[count - 1 :], curve.flops[count - 1 :] > HIDDEN * budget
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


@measuring.command_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Train and compare."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        data = options.dataset.resolve() if options.dataset else prepare(options.wikiextractor, work)
        curves = train_all(runs_of(options, data), work, options.jobs, options.threads)
        records = records_of(data)
    print(summary(curves, options, records))
    each = {run: {"flops": curve.flops.tolist(), "losses": curve.losses.tolist()} for run, curve in curves.items()}
    measuring.write_json(options.json, [{**vars(run), **values} for run, values in each.items()])
    if options.picture:
        draw(curves, options.flops, options.picture)
        print(f"picture: {options.picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
