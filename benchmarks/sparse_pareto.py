"""Dense, static, SET and RigL at equal training FLOPs: ``python -m benchmarks.sparse_pareto``.

Pre-trains BERTs of two widths on English Wikipedia through the product's own command, each with the same number of
model FLOPs, so that a sparse model sees more sequences. Prints the masked-LM loss against FLOPs, with a verdict.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.commands import REPOSITORY, command
from benchmarks.jobs import SIZES
from benchmarks.tables import markdown
from model.architecture import PRETRAINING, Architecture, model_flops_per_sample
from tests.real_data import real_data_root
from utilities.errors import UserError

CONFIG = REPOSITORY / "configs" / "pretraining" / "pretrain_tiny_128_phase1_cpu.json"
REAL_TEXT, REAL_FILES = "wikipedia_en/AA", 24  # as WikiExtractor writes it, a megabyte a file
WIDTHS = {
    name: {
        "num_hidden_layers": SIZES[name].layers,
        "hidden_size": SIZES[name].hidden,
        "num_attention_heads": SIZES[name].heads,
        "intermediate_size": 4 * SIZES[name].hidden,
    }
    for name in ("tiny", "mini")
}
METHODS = ("dense", "static", "set", "rigl")
VOCABULARY, SEQUENCE, PREDICTIONS = 8192, 128, 20
SEQUENCES_PER_UPDATE, UPDATES_PER_LOG = 32, 10
POINTS = (0.25, 0.5, 0.75, 1.0)  # of the FLOPs, at which losses are told
WINDOW = 0.1  # of the FLOPs, over which a loss is a mean


@dataclass(frozen=True)
class Curve:
    """The masked-LM loss of a run.

    Attributes:
        flops: model FLOPs spent at the end of each logging period.
        losses: mean of each period.
        explored: share of the blocks that ever existed.
        seconds: of training.
    """

    flops: np.ndarray
    losses: np.ndarray
    samples: int
    explored: float
    seconds: float

    def at(self, flops: float, window: float) -> float:
        """Mean loss of the ``window`` FLOPs before."""
        inside = (self.flops > flops - window) & (self.flops <= flops * (1 + 1e-9))
        return float(self.losses[inside].mean())


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sparse_pareto", description=__doc__)
    parser.add_argument("--wikiextractor", type=Path, metavar="DIR", help="text; default: that of the tests")
    parser.add_argument(
        "--dataset",
        type=Path,
        metavar="DIR",
        help=f"records made before, of {SEQUENCE} tokens and {VOCABULARY:,} word pieces",
    )
    parser.add_argument("--flops", type=float, default=1.2e13, help="of each run (default %(default)g)")
    parser.add_argument("--ratio", type=float, default=0.9, help="share of the blocks that is absent (default 0.9)")
    parser.add_argument("--block-size", type=int, default=16, help="default %(default)s")
    parser.add_argument("--pattern-updates", type=int, default=160, help="default %(default)s")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="at its peak (default %(default)s)")
    parser.add_argument("--widths", nargs="+", choices=list(WIDTHS), default=list(WIDTHS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seed", type=int, default=1984, help="default %(default)s")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep data and runs here; default: a temporary folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all curves")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw all curves")
    return parser.parse_args(arguments)


def prepare(text: Path | None, work: Path) -> Path:
    """Records of ``text``, or of English Wikipedia where the tests have it; those of an earlier call are kept."""
    data = work / "data"
    if (data / "manifest.json").exists():
        return data
    if text is None:
        text = work / "text"
        files = sorted((real_data_root() / REAL_TEXT).glob("wiki_*"))[:REAL_FILES]
        if not files:
            raise UserError("there is no text; name a folder that WikiExtractor wrote with --wikiextractor")
        (text / "AA").mkdir(parents=True, exist_ok=True)
        for file in files:
            (text / "AA" / file.name).symlink_to(file)
    command(
        *("-m", "data_utils.wikipedia", "--wikiextractor", text, "--output", data),
        *("--vocab-size", VOCABULARY, "--duplicate-factor", 1),
    )
    return data


def flops_per_sample(width: str, method: str, options: argparse.Namespace) -> int:
    """Model FLOPs to train on one sequence."""
    sparse = {"sparsity_ratio": options.ratio, "sparsity_block_size": options.block_size} if method != "dense" else {}
    architecture = Architecture(vocab_size=VOCABULARY, **WIDTHS[width], **sparse)
    return model_flops_per_sample(architecture, PRETRAINING, SEQUENCE, PREDICTIONS)


def train(options: argparse.Namespace, data: Path, runs: Path, width: str, method: str) -> Curve:
    """One run, or what it wrote if it is there already."""
    each = flops_per_sample(width, method, options)
    period = SEQUENCES_PER_UPDATE * UPDATES_PER_LOG
    samples = max(period, round(options.flops / each / period) * period)
    name = f"{width}-{method}"
    if (runs / name / "metrics.jsonl").exists() and read(runs / name, each).samples == samples:
        return read(runs / name, each)
    sparse: list[object] = []
    if method != "dense":
        sparse = ["--sparsity.ratio", options.ratio, "--sparsity.block-size", options.block_size]
        sparse += ["--sparsity.method", method, "--sparsity.pattern-updates", options.pattern_updates]
    sizes = [part for key, value in WIDTHS[width].items() for part in (f"--bert-config.{key.replace('_', '-')}", value)]
    command(
        *("run_pretraining.py", "--config", CONFIG, "--dataset-dir", data, "--output-dir", runs, "--name", name),
        *("--total-num-train-samples", samples, "--bert-config.vocab-size", VOCABULARY, *sizes, *sparse),
        *("--global-batch.micro-batch-size", SEQUENCES_PER_UPDATE, "--global-batch.grad-acc-steps-per-replica", 1),
        *("--global-batches-per-log", 1 if method in ("set", "rigl") else UPDATES_PER_LOG, "--seed", options.seed),
        *("--optimizer-opts.learning-rate.max-learning-rate", options.learning_rate),
        *("--optimizer-opts.learning-rate.warmup-frac", 0.1, "--tensorboard", "false", "--report", "false"),
    )
    return read(runs / name, each)


def read(run: Path, each: int) -> Curve:
    """What a run logged."""
    periods = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    patterns = run / "sparsity.jsonl"
    explored = json.loads(patterns.read_text(encoding="utf-8").splitlines()[-1])["explored"] if patterns.exists() else 1
    return Curve(
        np.array([period["samples"] * float(each) for period in periods]),
        np.array([period["metrics"]["mlm_loss"] for period in periods]),
        periods[-1]["samples"],
        explored,
        periods[-1]["seconds"],
    )


def losses_at(curve: Curve, budget: float) -> list[float]:
    """The losses at ``POINTS``."""
    last = float(curve.flops[-1])
    return [curve.at(share * last, WINDOW * budget) for share in POINTS]


def summary(curves: dict[tuple[str, str], Curve], options: argparse.Namespace) -> str:
    """A table and verdicts."""
    header = ["model", "FLOPs/sequence", "sequences", *(f"{p:.0%} of FLOPs" for p in POINTS), "explored", "seconds"]
    rows = [header]
    for (width, method), curve in curves.items():
        each = flops_per_sample(width, method, options)
        losses = [f"{loss:.3f}" for loss in losses_at(curve, options.flops)]
        told = [f"{each / 1e9:.3f} G", f"{curve.samples:,}"]
        rows.append([f"{width} {method}", *told, *losses, f"{curve.explored:.0%}", f"{curve.seconds:.0f}"])
    lines = [
        f"Masked-LM loss in nats, {options.flops:.3g} model FLOPs each, {options.ratio:.0%} of the encoder's blocks of"
        f" {options.block_size}×{options.block_size} absent, {options.pattern_updates} pattern updates, seed"
        f" {options.seed}; means over the last {WINDOW:.0%} of the FLOPs. Training losses.",
        "",
        markdown(rows),
        "",
        *verdicts({name: losses_at(curve, options.flops)[-1] for name, curve in curves.items()}),
    ]
    return "\n".join(lines)


def verdicts(final: dict[tuple[str, str], float]) -> list[str]:
    """What the last losses say, in words."""
    lines = []
    for width in dict.fromkeys(width for width, _ in final):
        losses = {method: loss for (w, method), loss in final.items() if w == width}
        order = " < ".join(f"{method} {loss:.3f}" for method, loss in sorted(losses.items(), key=lambda item: item[1]))
        lines.append(f"{width}: {order} (lower is better).")
        sparse = {method: loss for method, loss in losses.items() if method != "dense"}
        if "dense" in losses and sparse:
            best = min(sparse, key=lambda method: sparse[method])
            apart = losses["dense"] - sparse[best]
            word = "better" if apart > 0 else "worse"
            lines.append(f"  Per FLOP the best sparse model, {best}, is {abs(apart):.3f} nats {word} than dense.")
        if "static" in sparse and len(sparse) > 1:
            moving = min(loss for method, loss in sparse.items() if method != "static")
            apart = sparse["static"] - moving
            word = "gains" if apart > 0 else "loses"
            lines.append(f"  Changing the pattern {word} {abs(apart):.3f} nats against a static one.")
    if len(final) > 1:
        best = min(final, key=lambda name: final[name])
        lines.append(f"Of all, {' '.join(best)} has the lowest loss for these FLOPs: {final[best]:.3f}.")
    return lines


def draw(curves: dict[tuple[str, str], Curve], path: Path) -> None:
    """Loss against FLOPs, smoothed over a fiftieth of a run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    styles = dict(zip(WIDTHS, ("--", "-")))
    colours = dict(zip(METHODS, ("black", "tab:blue", "tab:orange", "tab:green")))
    for (width, method), curve in curves.items():
        count = max(1, len(curve.losses) // 50)
        smooth = np.convolve(curve.losses, np.ones(count) / count, "valid")
        axes.plot(
            curve.flops[count - 1 :],
            smooth,
            styles[width],
            color=colours[method],
            label=f"{width} {method}",
            linewidth=1.3,
        )
    axes.set(xlabel="model FLOPs", ylabel="masked-LM loss (nats)")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train and compare."""
    options = parse(arguments)
    try:
        with tempfile.TemporaryDirectory() as temporary:
            work = options.work or Path(temporary)
            data = options.dataset.resolve() if options.dataset else prepare(options.wikiextractor, work)
            curves = {
                (width, method): train(options, data, work / "runs", width, method)
                for width in options.widths
                for method in options.methods
            }
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(summary(curves, options))
    if options.json:
        values = [
            {"width": width, "method": method, "flops": curve.flops.tolist(), "losses": curve.losses.tolist()}
            for (width, method), curve in curves.items()
        ]
        options.json.write_text(json.dumps(values) + "\n", encoding="utf-8")
    if options.png:
        draw(curves, options.png)
    return 0


if __name__ == "__main__":
    sys.exit(main())
