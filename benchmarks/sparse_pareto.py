"""Dense, static, SET and RigL at equal training FLOPs: ``python -m benchmarks.sparse_pareto``.

Pre-trains BERTs of two widths on English Wikipedia by this project's command, each with the same number of model FLOPs,
so that a sparse model sees more sequences, and prints the masked-LM loss against FLOPs. FLOPs are counted instead of
time, so runs are parallel, with one thread each. Runs that are complete in ``--work`` are not repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import measuring
from benchmarks.measuring import command
from benchmarks.samples import wikipedia_files
from benchmarks.settings import SIZES, TINY_CONFIGS
from model.architecture import Architecture, model_flops_per_sample
from model.tasks import PRETRAINING, expected_blocks
from reports.run_files import read_run_folder
from sparsity.charts import PATTERNS, read_patterns
from utilities.environment import usable_cores
from utilities.errors import UserError
from utilities.files import write_atomically

WIDTHS = {name: SIZES[name].config() for name in ("tiny", "mini")}
DENSE, STATIC, SET, RIGL = METHODS = ("dense", "static", "set", "rigl")
VOCABULARY, SEQUENCE, PREDICTIONS = 8192, 128, 20
FLOPS = 8e12  # of each run
RATIO, BLOCK_SIZE = 0.9, 16  # fraction of absent blocks; rows and columns of a block
INTERVAL = 44  # approximate number of updates between changes of the pattern, as 160 changes over phase 1
SEED = 1984
SEQUENCES_PER_UPDATE, UPDATES_PER_LOG = 32, 5
MEGABYTES = 24  # of text
POINTS = (0.25, 0.5, 0.75, 1.0)  # of the FLOPs, at which losses are printed
WINDOW = 0.1  # of the FLOPs, over which a loss is a mean
HIDDEN = 0.04  # of the FLOPs, at the start, where all losses fall from ln(vocabulary): left out of the picture


@dataclass(frozen=True)
class Run:
    """One pre-training.

    Attributes:
        width: one of ``WIDTHS``.
        method: one of ``METHODS``.
        learning_rate: at its peak.
        flops: model FLOPs of the run.
        data: folder of the records.
    """

    width: str
    method: str
    learning_rate: float
    flops: float
    data: str

    @property
    def name(self) -> str:
        return f"{self.width}-{self.method}-{self.learning_rate:g}"

    @property
    def per_sequence(self) -> int:
        return self._per_sequence(self.method != DENSE)

    @property
    def per_search(self) -> float:
        """Return the model FLOPs by which RigL chooses blocks: one micro batch, with gradients of whole matrices.

        As Evci et al. 2020 (arXiv 1911.11134) count: sparse forward and backward, but for the gradient of the weights,
        which is a third of a matrix' training FLOPs.
        """
        if self.method != RIGL:
            return 0.0
        whole = (self._per_sequence(sparse=False) - self.per_sequence) / 3
        return SEQUENCES_PER_UPDATE * (self.per_sequence + whole)

    @property
    def updates(self) -> int:
        """Return the weight updates that the FLOPs suffice for, in whole logging periods."""
        each = SEQUENCES_PER_UPDATE * self.per_sequence + self.per_search / INTERVAL
        return max(1, round(self.flops / each / UPDATES_PER_LOG)) * UPDATES_PER_LOG

    @property
    def pattern_updates(self) -> int:
        return max(1, self.updates // INTERVAL - 1)

    def _per_sequence(self, sparse: bool) -> int:
        settings: dict[str, Any] = dict(WIDTHS[self.width])
        if sparse:
            settings.update(sparsity_ratio=RATIO, sparsity_block_size=BLOCK_SIZE)
        architecture = Architecture(vocab_size=VOCABULARY, **settings)
        blocks = expected_blocks(PRETRAINING, architecture.num_hidden_layers)
        return model_flops_per_sample(architecture, blocks, SEQUENCE, PREDICTIONS)


class Curve(NamedTuple):
    """The masked-LM loss of a run.

    Attributes:
        flops: model FLOPs spent at the end of each logging period.
        losses: mean of each period.
        sequences: trained on.
        explored: share of the blocks that ever existed.
        seconds: duration of training.
    """

    flops: list[float]
    losses: list[float]
    sequences: int
    explored: float
    seconds: float

    def at(self, flops: float, window: float) -> float:
        """Return the mean loss of the periods that end in the ``window`` FLOPs before, or else of the period around."""
        ends, losses = np.array(self.flops), np.array(self.losses)
        inside = (ends > flops - window) & (ends <= flops * (1 + 1e-9))
        around = min(int(np.searchsorted(ends, flops)), len(ends) - 1)
        return float(losses[inside].mean() if inside.any() else losses[around])


def sparse_learning_rate(dense: float, ratio: float) -> float:
    """Return the learning rate of a sparse model whose dense counterpart trains best at ``dense``.

    Source: Dietrich et al. 2021 (arXiv 2108.06277), η(s) = η(0) · exp(1.969 s² + 0.2905 s), fitted to BERT-Medium with
    static patterns and checked there with dynamic ones and blocks.
    """
    return float(f"{dense * math.exp(1.969 * ratio**2 + 0.2905 * ratio):.2g}")


def train_all(runs: Sequence[Run], work: Path) -> dict[Run, Curve]:
    """Train all runs, except those that are already in ``work``; as many at a time as there are cores."""
    missing = [run for run in runs if kept(run, work) is None]
    with ThreadPoolExecutor(usable_cores()) as pool:
        futures = [pool.submit(train, run, work) for run in missing]
        for done, future in enumerate(as_completed(futures), start=len(runs) - len(missing) + 1):
            if future.exception():
                pool.shutdown(cancel_futures=True)
            future.result()
            print(f"{done} of {len(runs)} runs done", file=sys.stderr, flush=True)
    curves = {run: kept(run, work) for run in runs}
    return {run: curve for run, curve in curves.items() if curve is not None}


def train(run: Run, work: Path) -> None:
    """Do one run by this project's command, and keep its curve."""
    folder = work / "runs" / run.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)  # of a study that was stopped, or of other settings
    sparse: list[object] = []
    if run.method != DENSE:
        sparse = ["--sparsity.ratio", RATIO, "--sparsity.block-size", BLOCK_SIZE]
        sparse += ["--sparsity.method", run.method, "--sparsity.pattern-updates", run.pattern_updates]
    sizes = [
        part for key, value in WIDTHS[run.width].items() for part in (f"--bert-config.{key.replace('_', '-')}", value)
    ]
    command(
        *("run_pretraining.py", "--config", *TINY_CONFIGS, "--dataset-dir", run.data),
        *("--output-dir", folder.parent, "--name", run.name),
        *("--total-num-train-samples", run.updates * SEQUENCES_PER_UPDATE, "--bert-config.vocab-size", VOCABULARY),
        *(*sizes, *sparse, "--global-batch.micro-batch-size", SEQUENCES_PER_UPDATE),
        *("--global-batch.grad-acc-steps-per-replica", 1, "--global-batches-per-log", UPDATES_PER_LOG),
        *("--optimizer-opts.learning-rate.max-learning-rate", run.learning_rate, "--seed", SEED),
        *("--optimizer-opts.learning-rate.warmup-frac", 0.1, "--tensorboard", "false", "--report", "false"),
        *("--execution.threads", 1),
        log=folder.with_name(f"{run.name}.log"),
    )
    curve = read(folder, run)
    if curve.sequences < run.updates * SEQUENCES_PER_UPDATE:  # the user stopped it, which is not an error there
        raise UserError(f"{folder} was stopped; the same command continues with the remaining runs")
    write_atomically(work / f"{run.name}.json", json.dumps({"run": asdict(run), "curve": curve}) + "\n")


def kept(run: Run, work: Path) -> Curve | None:
    """Return the curve of an earlier run with the same settings; None if there is none."""
    path = work / f"{run.name}.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return Curve(*content["curve"]) if content.get("run") == asdict(run) else None


def read(folder: Path, run: Run) -> Curve:
    data = read_run_folder(folder)
    steps, losses = data.series("mlm_loss")
    samples, _ = data.series("mlm_loss", "samples")
    patterns = read_patterns(folder / PATTERNS)
    changes = [pattern["step"] for pattern in patterns if pattern["grown"]]
    searches = [sum(change < step for change in changes) for step in steps]  # of RigL: on the next update's batch
    flops = [sample * run.per_sequence + search * run.per_search for sample, search in zip(samples, searches)]
    explored = patterns[-1]["explored"] if patterns else 1.0
    return Curve(flops, losses, int(samples[-1]), explored, data.periods[-1]["seconds"])


def prepare(work: Path) -> Path:
    """Make records of English Wikipedia, and return their folder; earlier ones are kept."""
    data = work / "data"
    if (data / "manifest.json").exists():
        return data
    command(
        *("-m", "data_utils.text", "--wikiextractor", *wikipedia_files(MEGABYTES), "--output", data),
        *("--vocab-size", VOCABULARY, "--duplicate-factor", 1),
    )
    return data


def all_runs(options: argparse.Namespace, data: Path) -> list[Run]:
    """Return all runs; the longest ones, which are sparse, come first, so that cores are not idle at the end."""
    published = [sparse_learning_rate(rate, RATIO) for rate in options.learning_rates]
    rates = dict.fromkeys(METHODS, options.sparse_learning_rates or published) | {DENSE: options.learning_rates}
    runs = [
        Run(width, method, rate, FLOPS, str(data)) for width in WIDTHS for method in METHODS for rate in rates[method]
    ]
    return sorted(runs, key=lambda run: run.method == DENSE)


def select_best(curves: dict[Run, Curve]) -> dict[Run, Curve]:
    """Return the run of each width and method whose last loss is lowest, in the order of widths and methods."""
    best: dict[tuple[int, int], Run] = {}
    for run in curves:
        key = list(WIDTHS).index(run.width), METHODS.index(run.method)
        if key not in best or losses_at(curves[run])[-1] < losses_at(curves[best[key]])[-1]:
            best[key] = run
    return {best[key]: curves[best[key]] for key in sorted(best)}


def losses_at(curve: Curve) -> list[float]:
    last = float(curve.flops[-1])
    return [curve.at(share * last, WINDOW * FLOPS) for share in POINTS]


def summary(curves: dict[Run, Curve], data: Path) -> list[str]:
    """Return a table of the best learning rate of each width and method, and the unigram baseline."""
    header = ["model", "GFLOPs/sequence", "learning rate", "sequences", *(f"at {p:.0%}" for p in POINTS), "explored"]
    rows = [[*header, "minutes"]]
    best = select_best(curves)
    for run, curve in best.items():
        losses = [f"{loss:.3f}" for loss in losses_at(curve)]
        figures = [f"{run.per_sequence / 1e9:.3f}", f"{run.learning_rate:g}", f"{curve.sequences:,}"]
        ever = f"{curve.explored:.0%}" if run.method != DENSE else measuring.NOTHING
        rows.append([f"{run.width} {run.method}", *figures, *losses, ever, f"{curve.seconds / 60:.1f}"])
    manifest = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    about = (
        f"Masked-LM loss in nats at shares of {FLOPS:.3g} model FLOPs; {RATIO:.0%} of the encoder's"
        f" {BLOCK_SIZE}×{BLOCK_SIZE} blocks absent, patterns changed every {INTERVAL} updates, seed {SEED}. Training"
        f" losses, means over the last {WINDOW:.0%} of the FLOPs; one thread a run."
    )
    baseline = f"The loss of the unigram baseline is {manifest['unigram_entropy_nats']:.3f} nats."
    return [about, measuring.markdown(rows), baseline]


def draw(curves: dict[Run, Curve], path: Path) -> None:
    """Draw loss against FLOPs, a panel for each width, smoothed over a twenty-fifth of a run."""
    from matplotlib.figure import Figure

    best = select_best(curves)
    widths = list(dict.fromkeys(run.width for run in best))
    figure = Figure(figsize=(1 + 4 * len(widths), 4), layout="constrained")
    panels = figure.subplots(1, len(widths), sharey=True, squeeze=False)[0]
    colours = dict(zip(METHODS, ("black", "tab:blue", "tab:orange", "tab:green")))
    for run, curve in best.items():
        count = max(1, len(curve.losses) // 25)
        smooth = np.convolve(curve.losses, np.ones(count) / count, "valid")
        flops = np.array(curve.flops[count - 1 :])
        shown = flops > HIDDEN * FLOPS
        label = f"{run.method}, {losses_at(curve)[-1]:.3f}"
        axes = panels[widths.index(run.width)]
        axes.plot(flops[shown] / 1e12, smooth[shown], color=colours[run.method], label=label, linewidth=1.3)
    for width, axes in zip(widths, panels):
        sizes = WIDTHS[width]
        axes.set(title=f"BERT-{width}, {sizes['num_hidden_layers']} × {sizes['hidden_size']}", xlabel="model TFLOPs")
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, title="method, loss at the end", loc="upper right")
    panels[0].set_ylabel("masked-LM loss (nats)")
    figure.savefig(path, dpi=150)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "--learning-rates": {"type": float, "nargs": "+", "default": [1e-3], "help": "for dense models; the best counts"},
    "--sparse-learning-rates": {"type": float, "nargs": "+", "help": "None: the dense ones by the published rule"},
    "--work": {"type": Path, "metavar": "DIR", "help": "keep data and runs here; None: a temporary folder"},
    "--picture": {"type": Path, "metavar": "FILE", "help": "draw all curves (.svg, .png)"},
}


@measuring.benchmark(ARGUMENTS)
def main(options: argparse.Namespace) -> list[str]:
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        data = prepare(work)
        curves = train_all(all_runs(options, data), work)
        parts = summary(curves, data)
    if options.picture:
        draw(curves, options.picture)
        parts.append(f"picture: {options.picture}")
    return parts


if __name__ == "__main__":
    sys.exit(main())
