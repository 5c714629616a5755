"""Held-out masked-LM loss over time, compared with PyTorch: the same text, the same size, the same cores.

ours: this project's commands, on rows of 32 tokens and then of 128, by two configs of configs/pretraining.
pytorch-standard: Hugging Face's BERT in PyTorch, masked-LM only, rows of 128 tokens, AdamW, linear warm-up and decay.
    Of several learning rates the best of short runs is taken.
pytorch-ours: the recipe of "ours" in PyTorch: rows, samples, batches, schedules, Muon and word vectors.

All compute the masked-LM head at the masked positions only. PyTorch computes in bfloat16 (autocast), with fused AdamW
and scaled dot-product attention. A competitor's clock starts with its first process, and includes imports and
compilation. Afterwards one scorer computes the loss of all snapshots. Competitors whose results --output contains do
not run again.

B batch · M masked positions of a batch · S sequence · H hidden · V vocabulary · N rows
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import measuring
from benchmarks.real_tasks import write_json
from benchmarks.samples import Arrays, select_rows
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import pretraining_features
from settings.derived import derive_architecture
from settings.loading import load_config
from utilities.environment import keep_freed_memory, usable_cores
from utilities.errors import UserError
from utilities.files import PROJECT

if TYPE_CHECKING:
    import torch
    from transformers import BertForMaskedLM

OURS, STANDARD, PYTORCH_OURS = "ours", "pytorch-standard", "pytorch-ours"
LENGTHS = (32, 128)  # tokens of a row in the two parts of the recipe
STANDARD_BATCH, STANDARD_WARM_UP = 128, 0.05
ROWS_AT_ONCE, SCORED_AT_ONCE = 16_384, 256
MATRICES = ("encoder", "transform")  # parts of the model whose matrices Muon updates

Result = dict[str, Any]  # minutes and losses of the snapshots, and what else was measured
Part = dict[str, Any]


# --- The recipe, and the rows ---


def config_file(length: int) -> Path:
    return PROJECT / "configs" / "pretraining" / f"pretrain_tiny_{length}_speedrun.json"


def read_part(length: int, dataset: Path, rows: Path, scale: float) -> Part:
    """Return what PyTorch needs to know of one part of the recipe.

    Args:
        length: of the rows, one of ``LENGTHS``.
        dataset: records of that length.
        rows: the same as arrays, see :func:`write_rows`.
        scale: factor of the number of samples.
    """
    config = load_config("pretraining", ["--config", str(config_file(length)), "--dataset-dir", str(dataset)]).config
    architecture, optimizer = derive_architecture(config), config.optimizer_opts
    assert architecture is not None and config.total_num_train_samples is not None
    batch = config.global_batch.micro_batch_size * config.global_batch.grad_acc_steps_per_replica
    schedule = optimizer.learning_rate
    return {
        "rows": str(rows),
        "length": config.max_seq_length,
        "predictions": config.max_predictions_per_seq,
        "architecture": asdict(architecture),
        "batch": batch,
        "total": int(config.total_num_train_samples * scale) // batch,  # updates
        "seconds": None,  # the clock does not end this part
        "decays": schedule.schedule_name == "up_down",
        "learning_rate": schedule.max_learning_rate,
        "warm_up": schedule.warmup_frac,
        "muon": True,
        "word_vectors": length == LENGTHS[0],
        "weight_decay": optimizer.weight_decay_rate,
        "betas": [optimizer.beta_1, optimizer.beta_2],
        "epsilon": optimizer.epsilon,
        "clip": optimizer.max_gradient_norm,
        "seed": config.seed,
    }


def write_rows(dataset: str, file: str, length: int, predictions: int, vocab_size: int) -> int:
    """Write the records of a data set as arrays of the smallest integers that hold them, and return their number."""
    from data_utils.records.reader import RecordReader  # imports TensorFlow

    reader = RecordReader(dataset, pretraining_features(length, predictions, vocab_size))
    starts = range(0, reader.count, ROWS_AT_ONCE)
    parts = [reader.read(np.arange(start, min(start + ROWS_AT_ONCE, reader.count))) for start in starts]
    arrays = {name: np.concatenate([part[name].astype(np.uint16) for part in parts]) for name in parts[0]}
    np.savez(file, **{name: values.astype(np.min_scalar_type(values.max())) for name, values in arrays.items()})
    return reader.count


def read_rows(file: str) -> Arrays:
    with np.load(file) as arrays:
        return dict(arrays)


def batches(rows: Arrays, size: int, seed: int) -> Iterator[Arrays]:
    """Yield batches in random order without end; each pass over the rows has its own order."""
    rng, count = np.random.default_rng(seed), len(rows["input_ids"])
    size = min(size, count)
    while True:
        order = rng.permutation(count)
        for begin in range(0, count - size + 1, size):
            yield select_rows(rows, np.sort(order[begin : begin + size]))


# --- PyTorch ---


def masked_lm_loss(model: BertForMaskedLM, batch: Arrays) -> torch.Tensor:
    """Return the mean loss over the real masked positions of a batch."""
    import torch

    ids, mask, segments = (
        torch.from_numpy(batch[name].astype(np.int64)) for name in ("input_ids", "input_mask", "segment_ids")
    )  # (B, S)
    row, column = np.nonzero(batch["masked_lm_weights"])
    positions, words = (batch[name][row, column].astype(np.int64) for name in ("masked_lm_positions", "masked_lm_ids"))
    hidden = model.bert(ids, mask, segments).last_hidden_state  # (B, S, H)
    scores = model.cls(hidden[torch.from_numpy(row), torch.from_numpy(positions)])  # (M, V)
    return torch.nn.functional.cross_entropy(scores, torch.from_numpy(words))


def optimizers_of(model: BertForMaskedLM, part: Part) -> list[torch.optim.Optimizer]:
    """Return fused AdamW and, if the part says so, Muon for the matrices; biases and LayerNorm do not decay."""
    import torch

    matrices, decayed, others = [], [], []
    for name, weight in model.named_parameters():
        is_matrix = part["muon"] and weight.ndim == 2 and any(word in name.split(".") for word in MATRICES)
        (matrices if is_matrix else decayed if weight.ndim >= 2 else others).append(weight)
    rate, decay = part["learning_rate"], part["weight_decay"]
    groups = [{"params": decayed, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=rate, betas=tuple(part["betas"]), eps=part["epsilon"], fused=True)
    if not matrices:
        return [adamw]
    # Momentum 0.95, Nesterov and the five products of Newton–Schulz are its defaults.
    return [adamw, torch.optim.Muon(matrices, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")]


def rate_factor(done: float, part: Part) -> float:
    """Return the share of the peak rate after ``done`` of the part's ``total``, in updates or in seconds."""
    total = part["total"]
    warm_up = round(part["warm_up"] * total)
    if done < warm_up:
        return min((done + 1) / warm_up, 1.0)
    return max((total - done) / max(total - warm_up, 1), 0.0) if part["decays"] else 1.0


class Snapshots:
    """Hugging Face folders of a model along its way, at equal times from a start."""

    def __init__(self, folder: Path, start: float, minutes: float):
        self._folder, self._start, self._every, self._next = folder, start, 60 * minutes, 60 * minutes
        self.taken: list[tuple[float, str]] = []  # minutes and folder

    @property
    def seconds(self) -> float:
        return time.time() - self._start

    def take(self, model: BertForMaskedLM, last: bool = False) -> None:
        """Save the model if it is time or the end; the time that this takes counts."""
        if last or self.seconds >= self._next:
            self._next = (self.seconds // self._every + 1) * self._every
            path, seconds = self._folder / f"snapshot-{len(self.taken):04}", self.seconds
            model.save_pretrained(path)
            self.taken.append((seconds / 60, str(path)))


def train_pytorch(parts: list[Part], folder: str, start: float, snapshot_minutes: float) -> Result:
    """Train in all parts one after the other.

    Args:
        parts: see :func:`read_part`. A part with ``seconds`` ends at that time after the start, and its ``total`` are
            these seconds: rates follow the clock, because nobody knows before how many updates it allows.
        folder: for snapshots.
        start: when this process was started, ``time.time()``.
        snapshot_minutes: from one snapshot to the next.
    """
    import torch
    from transformers import BertConfig, BertForMaskedLM

    keep_freed_memory()
    torch.set_num_threads(usable_cores())
    torch.manual_seed(parts[0]["seed"])
    model = BertForMaskedLM(BertConfig(**parts[0]["architecture"]))
    assert model.config._attn_implementation == "sdpa"
    model.train()
    snapshots, speeds = Snapshots(Path(folder), start, snapshot_minutes), []
    for part in parts:
        rows = read_rows(part["rows"])
        if part["word_vectors"]:
            set_word_vectors(model, rows, part)
        speeds.append(train_part(model, rows, part, snapshots))
    snapshots.take(model, last=True)
    return {"snapshots": snapshots.taken, "samples_per_second": speeds}


def train_part(model: BertForMaskedLM, rows: Arrays, part: Part, snapshots: Snapshots) -> float:
    """Train in one part and return samples per second."""
    import torch

    optimizers, data = optimizers_of(model, part), batches(rows, part["batch"], part["seed"])
    begin, updates = time.time(), 0
    while (done := snapshots.seconds if part["seconds"] else float(updates)) < part["total"]:
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = part["learning_rate"] * rate_factor(done, part)
        with torch.autocast("cpu", torch.bfloat16):
            loss = masked_lm_loss(model, next(data))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), part["clip"])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        updates += 1
        snapshots.take(model)
    return float(updates * part["batch"] / (time.time() - begin))


def set_word_vectors(model: BertForMaskedLM, rows: Arrays, part: Part) -> None:
    """Set the word embeddings to vectors from the counts of the rows, as this project does."""
    import torch

    from data_utils.word_vectors import word_vectors

    size, vocabulary = model.config.hidden_size, model.config.vocab_size
    reader = ArrayReader(pretraining_features(part["length"], part["predictions"], vocabulary), rows)
    vectors = model.config.initializer_range * word_vectors(reader, vocabulary, size, part["seed"])  # (V, H)
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(torch.from_numpy(vectors))


def held_out_losses(folders: list[str], file: str) -> list[float]:
    """Return the masked-LM loss of Hugging Face folders on held-out rows, in float32."""
    import torch
    from transformers import BertForMaskedLM

    torch.set_num_threads(usable_cores())
    rows, losses = read_rows(file), []
    starts = range(0, len(rows["input_ids"]), SCORED_AT_ONCE)
    parts = [{name: values[start : start + SCORED_AT_ONCE] for name, values in rows.items()} for start in starts]
    words = [int((part["masked_lm_weights"] > 0).sum()) for part in parts]
    for folder in folders:
        model = BertForMaskedLM.from_pretrained(folder).eval()
        with torch.inference_mode():
            means = [masked_lm_loss(model, part).item() for part in parts]
        losses.append(float(np.average(means, weights=words)))
    return losses


# --- The race ---


class Race:
    """Runs competitors and keeps their results in ``race.json`` of the output folder."""

    def __init__(self, options: argparse.Namespace):
        self._options, self._output = options, options.output.resolve()
        self._output.mkdir(parents=True, exist_ok=True)
        self._file = self._output / "race.json"
        self._data = {32: options.data_32.resolve(), 128: options.data_128.resolve()}
        self.results: dict[str, Result] = json.loads(self._file.read_text("utf-8")) if self._file.exists() else {}

    def run(self, name: str) -> None:
        """Run a competitor, unless its results exist."""
        if name in self.results:
            return
        shutil.rmtree(self._output / name, ignore_errors=True)  # of a race that was stopped
        (self._output / name).mkdir()
        run = {OURS: self._ours, STANDARD: self._standard, PYTORCH_OURS: self._pytorch_ours}[name]
        result = run(self._output / name)
        if self._options.blimp:
            result["blimp"] = self._minimal_pairs(self._output / name, result["snapshots"][-1][1])
        self.results[name] = result
        write_json(self._file, self.results)

    def _rows(self, length: int, held_out: bool = False) -> Path:
        """Return the file of a data set's arrays, written at the first call."""
        file = self._output / f"rows-{length}{'-held-out' if held_out else ''}.npz"
        if not file.exists():
            dataset = self._data[length] / "validation" if held_out else self._data[length]
            part = self._part(length, file)
            sizes = {"length": length, "predictions": part["predictions"]}
            vocabulary = part["architecture"]["vocab_size"]
            unfinished = file.with_suffix(".part.npz")
            arguments = {"dataset": str(dataset), "file": str(unfinished), "vocab_size": vocabulary, **sizes}
            measuring.in_process(write_rows, measuring.only("TF"), **arguments)
            unfinished.rename(file)
        return file

    def _part(self, length: int, rows: Path) -> Part:
        return read_part(length, self._data[length], rows, self._options.samples_scale)

    def _scored(self, result: Result) -> Result:
        folders, file = [folder for _, folder in result["snapshots"]], str(self._rows(128, held_out=True))
        losses = measuring.in_process(held_out_losses, measuring.only("TORCH"), folders=folders, file=file)
        return {**result, "losses": losses}

    def _ours(self, folder: Path) -> Result:
        start, origin = time.time(), []
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
        return self._scored(measuring.in_process(train_pytorch, environment, start=time.time(), **arguments))

    def _pytorch_ours(self, folder: Path) -> Result:
        return self._pytorch([self._part(length, self._rows(length)) for length in LENGTHS], folder)

    def _standard(self, folder: Path) -> Result:
        options = self._options

        def run(rate: float, minutes: float) -> Result:
            part = self._part(128, self._rows(128))
            part.update(batch=STANDARD_BATCH, warm_up=STANDARD_WARM_UP, learning_rate=rate, decays=True, muon=False)
            part.update(total=60 * minutes, seconds=60 * minutes)
            return self._pytorch([part], folder / f"{rate:g}-{minutes:g}")

        rates = options.learning_rates
        trials = {rate: run(rate, options.trial_minutes)["losses"][-1] for rate in rates} if len(rates) > 1 else {}
        best = min(trials, key=lambda rate: trials[rate]) if trials else rates[0]
        return {**run(best, options.minutes), "learning_rate": best, "trials": {f"{k:g}": v for k, v in trials.items()}}

    def _minimal_pairs(self, folder: Path, model: str) -> Any:
        line = ["-m", "tasks.minimal_pairs", "--checkpoint", model, "--data", self._options.blimp.resolve()]
        line += ["--limit", 20, "--vocab-file", self._data[128] / "vocab.txt", "--output", folder / "blimp.json"]
        measuring.command(*line, log=folder / "blimp.log")
        return json.loads((folder / "blimp.json").read_text(encoding="utf-8"))


# --- The report ---


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
    """Draw the held-out loss of all competitors over time."""
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
    "--data-128": {"required": True, "type": Path, "metavar": "FOLDER", "help": "of 128, with validation/"},
    "--output": {"required": True, "type": Path, "metavar": "FOLDER", "help": "for runs, race.json and race.svg"},
    "--competitors": {"nargs": "+", "choices": COMPETITORS, "default": list(COMPETITORS), "help": "to run"},
    "--minutes": {"type": float, "default": 60.0, "help": "of pytorch-standard"},
    "--trial-minutes": {"type": float, "default": 10.0, "help": "of pytorch-standard, with each learning rate"},
    "--learning-rates": {"nargs": "+", "type": float, "default": [5e-4, 1e-3, 2.5e-3], "help": "of pytorch-standard"},
    "--snapshot-minutes": {"type": float, "default": 1.0, "help": "from one snapshot to the next"},
    "--samples-scale": {"type": float, "default": 1.0, "help": "factor of the recipe's samples, for short runs"},
    "--blimp": {"type": Path, "metavar": "FOLDER", "help": "minimal pairs to score the last snapshots on"},
}


@measuring.benchmark(ARGUMENTS)
def main(options: argparse.Namespace) -> list[str]:
    measuring.require(["torch"])
    for folder in (options.data_32, options.data_128, options.data_128 / "validation"):
        if not folder.is_dir():
            raise UserError(f"{folder} does not exist; prepare data as guides/small.md does")
    race = Race(options)
    for name in options.competitors:
        race.run(name)
    draw(race.results, options.output / "race.svg")
    return report(race.results)


if __name__ == "__main__":
    sys.exit(main())
