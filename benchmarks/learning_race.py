"""Held-out masked-LM loss over time, compared with PyTorch: the same text, the same size, the same cores.

ours: this project's commands, on rows of 32 tokens and then of 128, by two configs of configs/pretraining.
pytorch-standard: Hugging Face's BERT in PyTorch, masked-LM only, rows of 128 tokens, AdamW, linear warm-up and decay.
    Of several learning rates the best of short runs is taken.
pytorch-ours: the recipe of "ours" in PyTorch: rows, samples, batches, schedules, Muon and word vectors.

All compute the masked-LM head at the masked positions only, in bfloat16 where the processor multiplies it faster than
float32. PyTorch has fused AdamW and scaled dot-product attention. A competitor's clock starts with its first process,
and includes imports and compilation. Afterwards one scorer computes the loss of all snapshots. Runs whose results
--output contains are not repeated.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import measuring
from benchmarks.real_tasks import write_json
from data_utils.records.features import pretraining_features
from settings.architecture import known_architecture
from settings.loading import resolve
from utilities.errors import UserError
from utilities.files import PROJECT

if TYPE_CHECKING:
    from benchmarks.race_pytorch import Part, Result

PEER = "benchmarks.race_pytorch"  # imports PyTorch
OURS, STANDARD, PYTORCH_OURS = "ours", "pytorch-standard", "pytorch-ours"
LENGTHS = (32, 128)  # tokens of a row in the two parts of the recipe
STANDARD_BATCH, STANDARD_WARM_UP = 128, 0.05
ROWS_AT_ONCE = 16_384


def config_file(length: int) -> Path:
    return PROJECT / "configs" / "pretraining" / f"pretrain_tiny_{length}_speedrun.json"


def read_part(length: int, dataset: Path, rows: Path, scale: float) -> Part:
    """Return what PyTorch needs to know of one part of the recipe.

    Args:
        length: number of tokens of a row, one of ``LENGTHS``.
        dataset: folder of the data set.
        rows: folder of its rows as arrays, see :func:`write_rows`.
        scale: factor of the number of samples.
    """
    config = resolve("pretraining", [config_file(length)], {"dataset_dir": str(dataset)}).config
    architecture, optimizer = known_architecture(config, "pretraining"), config.optimizer_opts
    assert architecture is not None and config.total_num_train_samples is not None
    batch = config.samples_per_update
    assert optimizer.name == "Muon" and optimizer.muon_scale is not None
    schedule = optimizer.learning_rate
    return {
        "rows": str(rows),
        "length": config.max_seq_length,
        "predictions": config.max_predictions_per_seq,
        "architecture": asdict(architecture),
        "batch": batch,
        "total": int(config.total_num_train_samples * scale) // batch,  # updates
        "seconds": None,  # the clock does not end this part
        "decays": schedule.schedule_name == "linear",
        "learning_rate": schedule.max_learning_rate,
        "warm_up": schedule.warmup_frac,
        "muon_scale": optimizer.muon_scale,
        "word_vectors": length == LENGTHS[0],
        "weight_decay": optimizer.weight_decay_rate,
        "betas": [optimizer.beta_1, optimizer.beta_2],
        "epsilon": optimizer.epsilon,
        "clip": optimizer.max_gradient_norm,
        "seed": config.seed,
    }


def write_rows(dataset: str, folder: str, length: int, predictions: int, vocab_size: int) -> None:
    """Write the records of a data set as arrays, ``NAME.npy``, of the smallest integers that can represent them."""
    from data_utils.records.reader import RecordReader  # imports TensorFlow

    reader = RecordReader(dataset, pretraining_features(length, predictions, vocab_size))
    starts = range(0, reader.count, ROWS_AT_ONCE)
    parts = [reader.read(np.arange(start, min(start + ROWS_AT_ONCE, reader.count))) for start in starts]
    for name in parts[0]:
        values = np.concatenate([part[name].astype(np.uint16) for part in parts])
        np.save(Path(folder) / f"{name}.npy", values.astype(np.min_scalar_type(values.max())))


class Race:
    """Runs competitors, each in a folder of its own with its results in ``result.json``."""

    def __init__(self, options: argparse.Namespace):
        self._options, self._output = options, options.output.resolve()
        self._data = {32: options.data_32.resolve(), 128: options.data_128.resolve()}

    def run(self, name: str) -> Result:
        """Return a competitor's results: the minutes and folders of its snapshots, and their held-out losses."""
        return self._once(name, {OURS: self._ours, STANDARD: self._standard, PYTORCH_OURS: self._pytorch_ours}[name])

    def _once(self, name: str, make: Callable[[Path], Result]) -> Result:
        result: Result = measuring.once(self._output / name / "result.json", make)
        return result

    def _rows(self, length: int, held_out: bool = False) -> Path:
        """Return the folder of a data set's arrays, written at the first call."""
        name = f"rows-{length}{'-held-out' if held_out else ''}"

        def write(folder: Path) -> Result:
            dataset = self._data[length] / "validation" if held_out else self._data[length]
            part = self._part(length, folder)
            sizes = {"length": length, "predictions": part["predictions"]}
            vocabulary = part["architecture"]["vocab_size"]
            arguments = {"dataset": str(dataset), "folder": str(folder), "vocab_size": vocabulary, **sizes}
            measuring.in_process(write_rows, measuring.only("TF"), **arguments)
            return {"dataset": str(dataset)}

        self._once(name, write)
        return self._output / name

    def _part(self, length: int, rows: Path) -> Part:
        return read_part(length, self._data[length], rows, self._options.samples_scale)

    def _scored(self, result: Result) -> Result:
        """Return results with the held-out losses of all snapshots."""
        folders, rows = [path for _, path in result["snapshots"]], str(self._rows(128, held_out=True))
        losses = measuring.in_process(f"{PEER}:held_out_losses", measuring.only("TORCH"), folders=folders, rows=rows)
        return {**result, "losses": losses}

    def _ours(self, folder: Path) -> Result:
        start = time.time()
        origin: list[Any] = []
        for length in LENGTHS:
            part = self._part(length, folder)
            line = ["run_pretraining.py", "--config", config_file(length), "--dataset-dir", self._data[length], *origin]
            line += ["--total-num-train-samples", part["total"] * part["batch"], "--do-validation", "false"]
            line += ["--checkpoint-minutes", self._options.snapshot_minutes, "--keep-last", "none"]
            measuring.command(*line, "--output-dir", folder, "--name", length, log=folder / f"{length}.log")
            origin = ["--pretrained-ckpt-path", folder / str(length)]
        snapshots = []
        for length in LENGTHS:
            for checkpoint in sorted((folder / str(length) / "checkpoints").glob("step-*")):
                minutes = ((checkpoint / "checkpoint.json").stat().st_mtime - start) / 60
                exported = folder / "exported" / f"{length}-{checkpoint.name}"
                line = ["-m", "checkpoints.export", "--checkpoint", checkpoint, "--output", exported]
                measuring.command(*line, log=folder / "export.log")
                snapshots.append((minutes, str(exported)))
        return self._scored({"snapshots": snapshots})

    def _pytorch(self, parts: list[Part], folder: Path) -> Result:
        every = self._options.snapshot_minutes
        arguments = {"parts": parts, "folder": str(folder), "snapshot_minutes": every}
        environment = measuring.only("TORCH")
        result = measuring.in_process(f"{PEER}:train_pytorch", environment, start=time.time(), **arguments)
        return self._scored(result)

    def _pytorch_ours(self, folder: Path) -> Result:
        return self._pytorch([self._part(length, self._rows(length)) for length in LENGTHS], folder)

    def _standard(self, folder: Path) -> Result:
        options, rates = self._options, self._options.learning_rates

        def train(folder: Path, rate: float, minutes: float) -> Result:
            part = self._part(128, self._rows(128))
            part.update(batch=STANDARD_BATCH, warm_up=STANDARD_WARM_UP, learning_rate=rate, decays=True)
            part.update(muon_scale=None, word_vectors=False, total=60 * minutes, seconds=60 * minutes)
            return self._pytorch([part], folder)

        trials = {}
        for rate in rates if len(rates) > 1 else []:
            name = f"{STANDARD}-{rate:g}-{options.trial_minutes:g}-minutes"
            result = self._once(name, partial(train, rate=rate, minutes=options.trial_minutes))
            trials[f"{rate:g}"] = result["losses"][-1]
        best = min(rates, key=lambda rate: trials.get(f"{rate:g}", 0.0))
        return {**train(folder, best, options.minutes), "learning_rate": best, "trials": trials}


def reached_after(result: Result, loss: float) -> float | None:
    """Return the minutes of the first snapshot whose loss is at most this."""
    pairs = zip(result["snapshots"], result["losses"], strict=True)
    return next((minutes for (minutes, _), value in pairs if value <= loss), None)


def report(results: dict[str, Result]) -> list[str]:
    rows = [["competitor", "minutes", "held-out loss", *(f"reaches {name}'s final loss after" for name in results)]]
    for name, result in results.items():
        cells = []
        for other in results.values():
            minutes = reached_after(result, other["losses"][-1])
            cells.append(measuring.NOTHING if minutes is None else f"{minutes:.1f} min")
        rows.append([name, f"{result['snapshots'][-1][0]:.1f}", f"{result['losses'][-1]:.3f}", *cells])
    curves = [["competitor", "minutes", "held-out loss"]]
    for name, result in results.items():
        for (minutes, _), loss in zip(result["snapshots"], result["losses"], strict=True):
            curves.append([name, f"{minutes:.2f}", f"{loss:.3f}"])
    return [measuring.markdown(rows), measuring.markdown(curves)]


def draw(results: dict[str, Result], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, result in results.items():
        axes.plot([minutes for minutes, _ in result["snapshots"]], result["losses"], marker=".", label=name)
    axes.set(xlabel="minutes", ylabel="held-out masked-LM loss (nats)")
    axes.legend(frameon=False)
    figure.savefig(path)


COMPETITORS = (OURS, STANDARD, PYTORCH_OURS)
ARGUMENTS: dict[str, dict[str, Any]] = {
    "--data-32": {"required": True, "type": Path, "metavar": "FOLDER", "help": "records of 32 tokens"},
    "--data-128": {"required": True, "type": Path, "metavar": "FOLDER", "help": "of 128 tokens, with validation/"},
    "--output": {"required": True, "type": Path, "metavar": "FOLDER", "help": "for runs, race.json, race.png"},
    "--competitors": {"nargs": "+", "choices": COMPETITORS, "default": list(COMPETITORS), "help": "to run"},
    "--minutes": {"type": float, "default": 60.0, "help": "duration of pytorch-standard"},
    "--trial-minutes": {"type": float, "default": 10.0, "help": "duration of a trial of each learning rate"},
    "--learning-rates": {"nargs": "+", "type": float, "default": [5e-4, 1e-3, 2.5e-3], "help": "to try"},
    "--snapshot-minutes": {"type": float, "default": 1.0, "help": "time from one snapshot to the next"},
    "--samples-scale": {"type": float, "default": 1.0, "help": "factor of the recipe's samples, for short runs"},
}


@measuring.benchmark(ARGUMENTS)
def main(options: argparse.Namespace) -> list[str]:
    measuring.require(["torch"])
    for folder in (options.data_32, options.data_128, options.data_128 / "validation"):
        if not folder.is_dir():
            raise UserError(f"{folder} does not exist; prepare data as guides/small.md does")
    race = Race(options)
    results = {name: race.run(name) for name in options.competitors}
    write_json(options.output / "race.json", results)
    draw(results, options.output / "race.png")
    return report(results)


if __name__ == "__main__":
    sys.exit(main())
