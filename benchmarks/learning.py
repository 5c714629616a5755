"""Compares learning curves: ``python -m benchmarks.learning pytorch`` or ``precision``.

pytorch: a BERT and a plain Hugging Face PyTorch loop, from the same initial weights on the same
    samples, without dropout: the loss of every step.
precision: the same model at a learning rate so small that most updates are less than half the distance of two float16
    numbers: in float32; in float16 with stochastic rounding; and in float16 with weights rounded to nearest,
    where such updates are lost. With ``--precisions``: these formats and float32.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measuring
from benchmarks.measuring import markdown
from benchmarks.samples import Arrays, generated_samples, read_samples, real_samples
from benchmarks.settings import MICRO_BATCH, SEED, SIZES, VOCABULARY, make_architecture, without_dropout
from data_utils.command_line import positive
from model.architecture import Architecture
from model.tasks import PRETRAINING
from utilities.errors import UserError

Curves = dict[str, list[float]]  # the loss of each step; the first curve is the reference

LIMIT = 0.001  # of PyTorch's loss, at every step
LOW_PRECISION_LIMIT = 0.01  # of float32's loss, at every step
MEAN_LIMIT = 0.005  # of float32's mean loss, in every sixth of the steps
SETTINGS = {"weight_decay": 0.01, "epsilon": 1e-6, "warmup": 0.1}


def deviations(curve: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Return the difference of each step, as a share of the reference's loss."""
    return [abs(a - b) / b for a, b in zip(curve, reference, strict=True)]


def means_of_sixths(losses: Sequence[float]) -> list[float]:
    return [float(np.mean(part)) for part in np.array_split(losses, 6)]


def load_samples(options: argparse.Namespace, count: int) -> tuple[str, Arrays]:
    """Return the name of the data, and the data: name → (count, …)."""
    if options.dataset_dir:
        return str(options.dataset_dir), read_samples(options.dataset_dir, VOCABULARY, count)
    real = real_samples(VOCABULARY, count)
    return ("generated samples", generated_samples(VOCABULARY, count)) if real is None else ("English Wikipedia", real)


def our_losses(
    architecture: Architecture, data: Arrays, steps: int, learning_rate: float, source: Any = None, **execution: Any
) -> list[float]:
    """Return the loss of each update, with AdamW, warm-up over a tenth, linear decay.

    Args:
        architecture: without dropout.
        data: ``MICRO_BATCH`` samples for each update, used once, in order.
        learning_rate: at its peak.
        source: the Hugging Face model to start from; None: one with random weights.
        execution: options of the platform.
    """
    from benchmarks.ours import losses, platform_of, training
    from data_utils.records.arrays import ArrayReader
    from data_utils.records.features import pretraining_features
    from execution.interface import OptimizerSettings, Update
    from keras_extensions.schedules import WarmUp
    from optimization.loss_scaling import INITIAL_SCALE

    platform = platform_of(**execution)
    schedule = WarmUp(learning_rate, steps, SETTINGS["warmup"])
    optimizer = platform.optimizer(
        OptimizerSettings("AdamW", schedule, SETTINGS["weight_decay"], epsilon=SETTINGS["epsilon"])
    )
    length, predictions = data["input_ids"].shape[1], data["masked_lm_ids"].shape[1]
    reader = ArrayReader(pretraining_features(length, predictions, architecture.vocab_size), data)
    update = Update(1, loss_scale=INITIAL_SCALE, adaptive_loss_scale=True)
    options: dict[str, Any] = {"platform": platform, "optimizer": optimizer, "update": update, "source": source}
    return losses(training(PRETRAINING, architecture, reader, MICRO_BATCH, **options), steps)


# --- Compared with PyTorch ---

OURS, PYTORCH = "this project", "Hugging Face PyTorch"


def pytorch_and_our_losses(architecture: Architecture, data: Arrays, steps: int, learning_rate: float) -> Curves:
    """Train on both sides from the same weights; see :func:`our_losses`. The architecture has all biases."""
    from benchmarks.peers_pytorch import pretraining_losses
    from checkpoints.pretrained.weights import from_tensorflow
    from model.huggingface import build_hf_model

    source = build_hf_model(PRETRAINING, architecture, SEED)
    weights = {}
    for variable in source.weights:
        known = from_tensorflow(variable.name)
        weights[known.name] = variable.numpy().T if known.transposed else variable.numpy()
    settings = {**SETTINGS, "learning_rate": learning_rate}
    theirs = pretraining_losses(architecture, weights, data, steps, settings)
    ours = our_losses(architecture, data, steps, learning_rate, source, xla=True, precision="float32")
    return {PYTORCH: theirs, OURS: ours}


def study_pytorch(options: argparse.Namespace) -> tuple[Curves, list[str], bool]:
    measuring.require(["torch"])
    os.environ["USE_TORCH"] = "AUTO"  # Transformers reads it when it is imported, and loads both frameworks
    data, samples = load_samples(options, options.steps * MICRO_BATCH)
    architecture = make_architecture(options.size, **without_dropout())
    curves = pytorch_and_our_losses(architecture, samples, options.steps, options.learning_rate)
    by_step = deviations(curves[OURS], curves[PYTORCH])
    worst = max(by_step)
    verdict = "within" if worst <= LIMIT else "NOT within"
    parts = [
        f"{options.steps} AdamW steps of BERT-{options.size} on {data}, dropout 0",
        *(f"{name}: loss {losses[0]:.4f} → {losses[-1]:.4f}" for name, losses in curves.items()),
        f"largest deviation {worst:.4%} at step {by_step.index(worst) + 1}: {verdict} {LIMIT:.1%} at every step",
    ]
    return curves, parts, worst <= LIMIT


# --- Number formats ---

FLOAT32, STOCHASTIC, TO_NEAREST = "float32", "float16, stochastic rounding", "float16, rounded to nearest"
FORMATS = {FLOAT32: ("float32", False), STOCHASTIC: ("float16", True), TO_NEAREST: ("float16", False)}


def study_precision(options: argparse.Namespace) -> tuple[Curves, list[str], bool]:
    data, samples = load_samples(options, options.steps * MICRO_BATCH)
    formats = {name: (name, False) for name in [FLOAT32, *options.precisions]} if options.precisions else FORMATS
    size, curves = SIZES[options.size], {}
    initial = round(0.7 / math.sqrt(size.hidden), 2)  # suits small models
    architecture = Architecture(vocab_size=VOCABULARY, initializer_range=initial, **size.config(), **without_dropout())
    for name, (precision, rounded) in formats.items():
        xla = None if options.precisions else True
        execution = {"precision": precision, "stochastic_rounding": rounded, "xla": xla}
        curves[name] = our_losses(architecture, samples, options.steps, options.learning_rate, **execution)
    means = {name: means_of_sixths(losses) for name, losses in curves.items()}
    judged, limit, where = (curves, LOW_PRECISION_LIMIT, "at every step")
    if options.precisions:  # many steps at a high learning rate, over which single ones drift apart
        judged, limit, where = (means, MEAN_LIMIT, "in the mean of every sixth of the updates")
    worst = {name: max(deviations(losses, judged[FLOAT32])) for name, losses in judged.items()}
    rows = [["mean loss of each sixth of the updates", *[""] * 6, "largest deviation"]]
    for name in curves:
        largest = "" if name == FLOAT32 else f"{worst[name]:.2%}"
        rows.append([name, *(f"{mean:.4f}" for mean in means[name]), largest])
    reached = max(apart for name, apart in worst.items() if name != TO_NEAREST) <= limit
    verdict = f"{'within' if reached else 'NOT within'} {limit:.1%} of float32 {where}"
    if not options.precisions:
        fallen = {name: losses[0] - float(np.mean(losses[-20:])) for name, losses in curves.items()}
        share = fallen[TO_NEAREST] / fallen[FLOAT32] if fallen[FLOAT32] else float("nan")
        verdict += f"; rounded to nearest, the loss fell {share:.0%} as far as in float32"
    about = f"{options.steps} AdamW updates of {MICRO_BATCH} samples at {options.learning_rate:g}, {data}"
    parts = [about, markdown(rows), f"{'all others' if options.precisions else 'stochastic rounding'}: {verdict}"]
    return curves, parts, reached


def draw(curves: Curves, path: Path) -> None:
    """Draw all curves, each a mean over ten steps, and below them the deviation of each from the first."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    (_, reference), *_ = curves.items()
    count = 10 if len(reference) > 50 else 1
    for index, (name, losses) in enumerate(curves.items()):
        smooth = [np.mean(losses[max(0, end - count) : end]) for end in range(1, len(losses) + 1)]
        look: dict[str, Any] = {"linewidth": 1.3, "alpha": 1.0} if index else {"linewidth": 4, "alpha": 0.4}
        above.plot(range(1, len(losses) + 1), smooth, label=name, **look)
        if index:
            below.plot(range(1, len(losses) + 1), [100 * share for share in deviations(losses, reference)], linewidth=1)
    above.set_ylabel("loss (nats)")
    above.legend(frameon=False)
    below.set(xlabel="weight update", ylabel="deviation (%)")
    figure.savefig(path, dpi=150)


STUDIES = {"pytorch": (study_pytorch, 100, 1e-3), "precision": (study_precision, 300, 3e-5)}  # steps, learning rate

ARGUMENTS: dict[str, dict[str, Any]] = {
    "study": {"choices": STUDIES, "help": "what to compare"},
    "--learning-rate": {"type": float, "help": "peak; None: 1e-3 for pytorch, 3e-5 for precision"},
    "--steps": {"type": positive, "help": "weight updates; None: 100 for pytorch, 300 for precision"},
    "--dataset-dir": {"type": Path, "metavar": "FOLDER", "help": "records of length 128; None: made of Wikipedia"},
    "--precisions": {"nargs": "+", "help": "values of execution.precision to compare with float32; None: float16"},
    "--size": {"choices": SIZES, "default": "tiny", "help": "size of the model"},
    "--picture": {"type": Path, "metavar": "FILE", "help": "draw the curves (.svg, .png)"},
}


@measuring.benchmark(ARGUMENTS)
def main(options: argparse.Namespace) -> list[str]:
    study, steps, rate = STUDIES[options.study]
    options.steps, options.learning_rate = options.steps or steps, options.learning_rate or rate
    curves, parts, reached = study(options)
    if options.picture:
        draw(curves, options.picture)
        parts.append(f"picture: {options.picture}")
    if not reached:
        print("\n\n".join(parts), file=sys.stderr)
        raise UserError("the losses deviate by more than the limit, see above")
    return parts


if __name__ == "__main__":
    sys.exit(main())
