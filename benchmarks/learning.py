"""Do two ways to train learn the same? ``python -m benchmarks.learning pytorch``, ``precision`` or ``packs``.

pytorch: BERT-tiny (2 layers × 128) beside a plain Hugging Face PyTorch loop, from the same initial weights on the same
    samples, without dropout: the loss of every step. Needs PyTorch: ``pip install -r requirements-bench.txt``.
precision: the same model at a learning rate so small that most updates are less than half the distance of two float16
    numbers: in float32; in float16 with weights rounded at random; and in float16 with weights rounded to nearest,
    where such updates are lost.
packs: BERT-tiny pre-trained twice on the same sequences through the product's own commands: one padded sequence a row,
    and packs with as many sequences in a weight update. Losses are compared against sequences seen. Needs text.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import measuring
from benchmarks.samples import Arrays, generated_samples, read_samples, real_samples, real_text
from benchmarks.settings import MICRO_BATCH, SEED, TINY_CONFIGS, VOCABULARY, architecture_of, without_dropout
from model.architecture import PRETRAINING, Architecture

Curves = dict[str, list[float]]  # the loss of each step or window; the first curve is the reference

LIMIT = 0.001  # of PyTorch's loss, at every step
NARROW_LIMIT = 0.01  # of float32's loss, at every step
PACKED_LIMIT = 0.01  # of the padded loss, in every window


def deviations(curve: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Return the difference of each step, as a share of the reference's loss."""
    return [abs(a - b) / b for a, b in zip(curve, reference, strict=True)]


def samples_of(options: argparse.Namespace, count: int) -> tuple[str, Arrays]:
    """Return what the data is, and the data: name → (count, …)."""
    if options.dataset_dir:
        return str(options.dataset_dir), read_samples(options.dataset_dir, VOCABULARY, count)
    real = None if options.generated else real_samples(VOCABULARY, count)
    return ("generated samples", generated_samples(VOCABULARY, count)) if real is None else ("English Wikipedia", real)


# --- Beside PyTorch ---

OURS, PYTORCH = "this project", "Hugging Face PyTorch"
PYTORCH_SETTINGS = {"learning_rate": 1e-3, "weight_decay": 0.01, "epsilon": 1e-6, "warmup": 0.1}


def beside_pytorch(
    architecture: Architecture, data: Arrays, steps: int, learning_rate: float, rows: int = MICRO_BATCH
) -> Curves:
    """Train on both sides from the same weights.

    Args:
        architecture: without dropout, with all biases.
        data: at least ``steps × rows`` samples, used once, in order.
        learning_rate: at the end of the warm-up; linear to 0 after it.
        rows: of a step.
    """
    from benchmarks.ours import losses, training
    from benchmarks.peers_pytorch import pretraining_losses
    from checkpoints.pretrained.weights import from_tensorflow
    from data_utils.records.arrays import ArrayReader
    from data_utils.records.features import pretraining_features
    from execution.software.platform import SoftwarePlatform
    from keras_extensions.schedules import UpDown
    from model.huggingface import untrained
    from optimization.optimizers import AdamW

    settings = {**PYTORCH_SETTINGS, "learning_rate": learning_rate}
    source = untrained(PRETRAINING, architecture, SEED)
    weights = {}
    for variable in source.weights:
        known = from_tensorflow(variable.name)
        weights[known.name] = variable.numpy().T if known.transposed else variable.numpy()
    length, predictions = data["input_ids"].shape[1], data["masked_lm_ids"].shape[1]
    reader = ArrayReader(pretraining_features(length, predictions, architecture.vocab_size), data)
    schedule = UpDown(learning_rate, steps, settings["warmup"])
    optimizer = AdamW(schedule, weight_decay_rate=settings["weight_decay"], epsilon=settings["epsilon"])
    platform = SoftwarePlatform(seed=SEED, xla=True, recompute=False)
    made = training(PRETRAINING, architecture, reader, rows, platform=platform, optimizer=optimizer, source=source)
    theirs = pretraining_losses(architecture, weights, data, rows, steps, settings)
    return {PYTORCH: theirs, OURS: losses(made, steps)}


def study_pytorch(options: argparse.Namespace) -> tuple[Curves, str, bool]:
    measuring.require(["torch"])
    os.environ["USE_TORCH"] = "AUTO"  # Transformers reads it when it is imported, and loads both frameworks
    data, samples = samples_of(options, options.steps * options.micro_batch)
    tiny = architecture_of("tiny", **without_dropout())
    curves = beside_pytorch(tiny, samples, options.steps, options.learning_rate, options.micro_batch)
    apart = deviations(curves[OURS], curves[PYTORCH])
    worst = max(apart)
    lines = [f"{options.steps} AdamW steps of BERT-tiny on {data}, dropout 0"]
    lines += [f"{name}: loss {losses[0]:.4f} → {losses[-1]:.4f}" for name, losses in curves.items()]
    verdict = "within" if worst <= LIMIT else "NOT within"
    step = apart.index(worst) + 1
    lines.append(f"largest deviation {worst:.4%} at step {step}: {verdict} {LIMIT:.1%} at every step")
    return curves, "\n".join(lines), worst <= LIMIT


# --- Number formats ---

FLOAT32, AT_RANDOM, TO_NEAREST = "float32", "float16, rounded at random", "float16, rounded to nearest"
FORMATS = {FLOAT32: ("float32", False), AT_RANDOM: ("float16", True), TO_NEAREST: ("float16", False)}


def losses_in(
    precision: str, at_random: bool, data: Arrays, steps: int, rows: int, learning_rate: float
) -> list[float]:
    """Return the loss of each update in one number format, with AdamW, warm-up over a tenth, linear decay.

    Args:
        precision: of weights and computation.
        at_random: round weights stochastically.
        data: samples, used once, in order.
        rows: of an update.
    """
    from benchmarks.ours import losses, training
    from benchmarks.samples import pretraining_spec
    from data_utils.records.arrays import ArrayReader
    from execution.interface import OptimizerSettings, Update
    from execution.software.platform import SoftwarePlatform
    from execution.software.precision import Numerics
    from keras_extensions.schedules import UpDown
    from optimization.loss_scaling import INITIAL_SCALE

    tiny = Architecture(
        vocab_size=VOCABULARY,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
        initializer_range=0.06,  # about 0.7 / √H, which suits so small a model
        **without_dropout(),
    )
    numerics = Numerics(precision, stochastic_rounding=at_random)
    platform = SoftwarePlatform(SEED, xla=True, recompute=False, numerics=numerics)
    optimizer = platform.optimizer(OptimizerSettings("AdamW", UpDown(learning_rate, steps, 0.1)))
    update = Update(1, loss_scale=INITIAL_SCALE, adaptive_loss_scale=True)
    reader = ArrayReader(pretraining_spec(), data)
    made = training(PRETRAINING, tiny, reader, rows, platform=platform, optimizer=optimizer, update=update)
    return losses(made, steps)


def study_precision(options: argparse.Namespace) -> tuple[Curves, str, bool]:
    data, samples = samples_of(options, options.steps * options.micro_batch)
    common = (samples, options.steps, options.micro_batch, options.learning_rate)
    curves = {name: losses_in(*variant, *common) for name, variant in FORMATS.items()}
    shown = sorted({0, *(options.steps * part // 6 - 1 for part in range(1, 7))} - {-1})
    rows = [["loss at step", *(str(step + 1) for step in shown), "largest deviation"]]
    worst = {name: max(deviations(losses, curves[FLOAT32])) for name, losses in curves.items()}
    for name, losses in curves.items():
        largest = "" if name == FLOAT32 else f"{worst[name]:.2%}"
        rows.append([name, *(f"{losses[step]:.4f}" for step in shown), largest])
    fallen = {name: losses[0] - sum(losses[-20:]) / len(losses[-20:]) for name, losses in curves.items()}
    share = fallen[TO_NEAREST] / fallen[FLOAT32] if fallen[FLOAT32] else float("nan")
    reached = worst[AT_RANDOM] <= NARROW_LIMIT
    text = (
        f"{options.steps} AdamW updates of {options.micro_batch} samples at {options.learning_rate:g}, {data}\n"
        f"{measuring.markdown(rows)}\nrounded at random: {'within' if reached else 'NOT within'} {NARROW_LIMIT:.0%} of"
        f" float32 at every step; rounded to nearest, the loss fell by {share:.0%} of what it fell in float32"
    )
    return curves, text, reached


# --- Packs beside padded sequences ---

PADDED, PACKED = "one padded sequence a row", "packs"
TEXT_FILES = 8
SEQUENCES_PER_UPDATE, MICRO_BATCHES = 64, 2
PACK_LENGTH, PLACES = 256, 6  # tokens and sequences of a pack at most; a sequence has up to 128 tokens
PACKED_VOCABULARY = 8192
WINDOWS = 10  # of the sequences seen, in which losses are compared
LOSSES = ("mlm_loss", "nsp_loss")


class LossBySequences(NamedTuple):
    """The training loss of a run.

    Attributes:
        samples: sequences seen at the end of each logging period.
        losses: mean of the sum of both losses in each period.
    """

    samples: np.ndarray
    losses: np.ndarray

    def within(self, begin: float, end: float) -> float:
        """Return the mean loss between two numbers of sequences seen."""
        starts = np.append(0, self.samples[:-1])
        shares = np.clip(np.minimum(self.samples, end) - np.maximum(starts, begin), 0, None)
        return float((shares * self.losses).sum() / shares.sum())


def in_windows(padded: LossBySequences, packed: LossBySequences, windows: int = WINDOWS) -> tuple[list[float], Curves]:
    """Return the ends of equal windows of sequences that both runs have seen, and the losses in the windows."""
    bounds = np.linspace(0, min(padded.samples[-1], packed.samples[-1]), windows + 1)
    pairs = list(pairwise(bounds))
    curves = {PADDED: padded, PACKED: packed}
    means = {name: [curve.within(*pair) for pair in pairs] for name, curve in curves.items()}
    return [float(end) for end in bounds[1:]], means


def summary_of_packs(factor: float, ends: Sequence[float], curves: Curves) -> tuple[str, bool]:
    """Return a table and a verdict, and whether losses agree.

    Args:
        factor: sequences in a pack on average.
    """
    apart = deviations(curves[PACKED], curves[PADDED])
    columns = (ends, curves[PADDED], curves[PACKED], apart)
    rows = [["sequences seen", "loss, padded", "in packs", "apart"]]
    rows += [[f"{end:,.0f}", f"{a:.4f}", f"{b:.4f}", f"{share:.2%}"] for end, a, b, share in zip(*columns)]
    worst = max(apart)
    verdict = "within" if worst <= PACKED_LIMIT else "NOT within"
    text = f"{factor:.3f} sequences in a pack; at most {worst:.2%} apart: {verdict} {PACKED_LIMIT:.0%}"
    return f"{measuring.markdown(rows)}\n{text}", worst <= PACKED_LIMIT


def prepare_packs(text: Path, folder: Path) -> float:
    """Write the same sequences of up to 128 tokens one by one and, in ``packed``, in packs.

    Returns:
        sequences in a pack on average.
    """
    measuring.command(
        *("-m", "data_utils.text", "--wikiextractor", text, "--output", folder),
        *("--vocab-size", PACKED_VOCABULARY, "--short-seq-prob", 1.0, "--duplicate-factor", 1),
    )
    packs = folder / "packed"
    measuring.command(
        *("-m", "data_utils.packing", "--input", folder, "--output", packs),
        *("--max-sequences-per-pack", PLACES, "--max-seq-length", PACK_LENGTH),
    )
    totals = json.loads((packs / "manifest.json").read_text(encoding="utf-8"))["totals"]
    return totals["sequences"] / totals["records"]


def run_command(options: argparse.Namespace, data: Path, rows: int, folder: Path, *flags: object) -> LossBySequences:
    """Pre-train by the product's command, ``rows`` in a weight update."""
    measuring.command(
        *("run_pretraining.py", "--config", *TINY_CONFIGS, "--dataset-dir", data),
        *("--output-dir", folder.parent, "--name", folder.name),
        *("--total-num-train-samples", options.sequences, "--bert-config.vocab-size", PACKED_VOCABULARY),
        *("--global-batch.micro-batch-size", rows // MICRO_BATCHES),
        *("--global-batch.grad-acc-steps-per-replica", MICRO_BATCHES, "--global-batches-per-log", 5),
        *("--optimizer-opts.learning-rate.max-learning-rate", options.learning_rate),
        *("--optimizer-opts.learning-rate.warmup-frac", 0.1, *flags),
    )
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    periods = [json.loads(line) for line in lines]
    losses = [sum(period["metrics"][loss] for loss in LOSSES) for period in periods]
    return LossBySequences(np.array([period["samples"] for period in periods]), np.array(losses))


def study_packs(options: argparse.Namespace) -> tuple[Curves, str, bool]:
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).resolve()
        text = options.wikiextractor or real_text(work / "text", TEXT_FILES)
        measuring.require([], [text.resolve()])
        factor = prepare_packs(text.resolve(), work / "data")
        rows = round(SEQUENCES_PER_UPDATE / factor / MICRO_BATCHES) * MICRO_BATCHES
        padded = run_command(options, work / "data", SEQUENCES_PER_UPDATE, work / "runs" / "padded")
        # The update holds as many sequences as before, so the betas stay.
        packs = ("--max-seq-length", PACK_LENGTH, "--packing.max-sequences-per-pack", PLACES)
        betas = ("--packing.adjust-betas", "false")
        packed = run_command(options, work / "data" / "packed", rows, work / "runs" / "packed", *packs, *betas)
    ends, curves = in_windows(padded, packed)
    return curves, *summary_of_packs(factor, ends, curves)


# --- The command ---

STUDIES = {"pytorch": study_pytorch, "precision": study_precision, "packs": study_packs}


def draw(curves: Curves, path: Path) -> None:
    """Draw all curves, each a mean over ten steps, and below them how far each is from the first."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    (_, reference), *_ = curves.items()
    count = 10 if len(reference) > 50 else 1
    for place, (name, losses) in enumerate(curves.items()):
        smooth = [np.mean(losses[max(0, end - count) : end]) for end in range(1, len(losses) + 1)]
        look: dict[str, Any] = {"linewidth": 1.3, "alpha": 1.0} if place else {"linewidth": 4, "alpha": 0.4}
        above.plot(range(1, len(losses) + 1), smooth, label=name, **look)
        if place:
            below.plot(range(1, len(losses) + 1), [100 * share for share in deviations(losses, reference)], linewidth=1)
    above.set_ylabel("loss (nats)")
    above.legend(frameon=False)
    below.set(xlabel="weight update, or window of sequences seen", ylabel="deviation (%)")
    figure.savefig(path, dpi=150)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = measuring.parser_of("learning", __doc__)
    studies = parser.add_subparsers(dest="study", required=True)
    for name, steps, rate in (("pytorch", 100, 1e-3), ("precision", 300, 3e-5), ("packs", None, 1e-3)):
        study = studies.add_parser(name)
        study.add_argument("--learning-rate", type=float, default=rate, help="at its peak (default %(default)s)")
        study.add_argument("--json", type=Path, metavar="FILE", help="write the curves")
        study.add_argument("--picture", type=Path, metavar="FILE", help="draw the curves (.svg, .png)")
        if steps is None:
            study.add_argument("--wikiextractor", type=Path, metavar="DIR", help="text; default: real data's Wikipedia")
            study.add_argument("--sequences", type=int, default=25600, help="to train on (default %(default)s)")
            study.add_argument("--work", type=Path, metavar="DIR", help="keep data and runs here; default: a temporary")
            continue
        study.add_argument(
            "--steps", type=measuring.at_least_one, default=steps, help="weight updates (default %(default)s)"
        )
        study.add_argument(
            "--micro-batch", type=measuring.at_least_one, default=MICRO_BATCH, help="samples of an update"
        )
        data = study.add_mutually_exclusive_group()
        text = "records of length 128 with 20 predictions; default: made from real data's Wikipedia, or generated"
        data.add_argument("--dataset-dir", type=Path, metavar="FOLDER", help=text)
        data.add_argument("--generated", action="store_true", help="generated samples, also where there is real text")
    return parser.parse_args(arguments)


@measuring.command_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Train and compare; status 0 where the curves agree, 1 where they do not."""
    options = parse(arguments)
    curves, text, reached = STUDIES[options.study](options)
    print(text)
    measuring.write_json(options.json, curves)
    if options.picture:
        draw(curves, options.picture)
        print(f"picture: {options.picture}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
