"""The pre-trainings of ``benchmarks.sparse_pareto``: how long each is, side by side, each kept once it is done."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measuring import command
from benchmarks.settings import SIZES, TINY_CONFIGS
from model.architecture import PRETRAINING, Architecture, model_flops_per_sample
from utilities.errors import UserError
from utilities.files import write_atomically
from utilities.report.run_folder import read_run_folder

WIDTHS = {name: SIZES[name].config() for name in ("tiny", "mini")}
DENSE, STATIC, SET, RIGL = METHODS = ("dense", "static", "set", "rigl")
VOCABULARY, SEQUENCE, PREDICTIONS = 8192, 128, 20
SEQUENCES_PER_UPDATE, UPDATES_PER_LOG = 32, 5


@dataclass(frozen=True)
class Run:
    """One pre-training.

    Attributes:
        width: one of ``WIDTHS``.
        method: one of ``METHODS``.
        learning_rate: at its peak.
        flops: model FLOPs to be spent.
        ratio: share of the blocks that is absent from a sparse model.
        interval: weight updates between two changes of the pattern, about.
        data: folder of the records.
    """

    width: str
    method: str
    learning_rate: float
    flops: float
    ratio: float
    block_size: int
    interval: int
    seed: int
    data: str

    @property
    def name(self) -> str:
        return f"{self.width}-{self.method}-{self.learning_rate:g}"

    @property
    def per_sequence(self) -> int:
        """Return the model FLOPs to train on one sequence."""
        return self._per_sequence(self.method != DENSE)

    @property
    def per_search(self) -> float:
        """Return the model FLOPs by which RigL finds what to grow: one micro batch, with gradients of whole matrices.

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
        each = SEQUENCES_PER_UPDATE * self.per_sequence + self.per_search / self.interval
        return max(1, round(self.flops / each / UPDATES_PER_LOG)) * UPDATES_PER_LOG

    @property
    def pattern_updates(self) -> int:
        """Return the number of changes of the pattern."""
        return max(1, self.updates // self.interval - 1)

    def _per_sequence(self, sparse: bool) -> int:
        settings: dict[str, Any] = dict(WIDTHS[self.width])
        if sparse:
            settings.update(sparsity_ratio=self.ratio, sparsity_block_size=self.block_size)
        architecture = Architecture(vocab_size=VOCABULARY, **settings)
        return model_flops_per_sample(architecture, PRETRAINING, SEQUENCE, PREDICTIONS)


class Curve(NamedTuple):
    """The masked-LM loss of a run.

    Attributes:
        flops: model FLOPs spent at the end of each logging period.
        losses: mean of each period.
        sequences: trained on.
        explored: share of the blocks that ever existed.
        seconds: of training.
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


def train_all(runs: Sequence[Run], work: Path, jobs: int, threads: int) -> dict[Run, Curve]:
    """Train all runs; those that ``work`` holds already are not done again.

    Args:
        jobs: runs at a time.
        threads: of each.

    Raises:
        UserError: a run failed; those that ran beside it are kept, and no other is started.
    """
    missing = [run for run in runs if kept(run, work) is None]
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        futures = [pool.submit(train, run, work, threads) for run in missing]
        for done, future in enumerate(as_completed(futures), start=len(runs) - len(missing) + 1):
            if future.exception():
                pool.shutdown(cancel_futures=True)
            future.result()
            print(f"{done} of {len(runs)} runs done", file=sys.stderr, flush=True)
    curves = {run: kept(run, work) for run in runs}
    return {run: curve for run, curve in curves.items() if curve is not None}


def train(run: Run, work: Path, threads: int) -> None:
    """Do one run by the product's command, and keep its curve."""
    folder = work / "runs" / run.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)  # of a study that was stopped, or of other settings
    sparse: list[object] = []
    if run.method != DENSE:
        sparse = ["--sparsity.ratio", run.ratio, "--sparsity.block-size", run.block_size]
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
        *("--optimizer-opts.learning-rate.max-learning-rate", run.learning_rate, "--seed", run.seed),
        *("--optimizer-opts.learning-rate.warmup-frac", 0.1, "--tensorboard", "false", "--report", "false"),
        *("--execution.threads", threads),
        log=folder.with_name(f"{run.name}.log"),
    )
    curve = read(folder, run)
    if curve.sequences < run.updates * SEQUENCES_PER_UPDATE:  # the user stopped it, which is no error there
        raise UserError(f"{folder} was stopped; the same command resumes with the runs that are not done")
    write_atomically(work / f"{run.name}.json", json.dumps({"run": asdict(run), "curve": curve}) + "\n")


def kept(run: Run, work: Path) -> Curve | None:
    """Return the curve of a run that was done before with the same settings; None where there is none."""
    path = work / f"{run.name}.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return Curve(*content["curve"]) if content.get("run") == asdict(run) else None


def read(folder: Path, run: Run) -> Curve:
    """Return what a run logged."""
    data = read_run_folder(folder)
    steps, losses = data.series("mlm_loss")
    samples = data.series("samples")[1]
    changes = [pattern["step"] for pattern in data.patterns if pattern["grown"]]
    searches = [sum(change < step for change in changes) for step in steps]  # of RigL: on the next update's batch
    flops = [sample * run.per_sequence + search * run.per_search for sample, search in zip(samples, searches)]
    explored = data.patterns[-1]["explored"] if data.patterns else 1.0
    return Curve(flops, losses, int(samples[-1]), explored, data.periods[-1]["seconds"])
