"""What pre-training is worth: ``python -m benchmarks.fine_tuning --checkpoint RUN``.

Fine-tunes a model pre-trained by this project on SST-2, MRPC and SQuAD, through the product's own commands. Beside it:
the same model from random weights; the same weights, exported, in a plain PyTorch loop on Hugging Face's model; and the
best answer that does not look at the sample. Several seeds each; with several learning rates, each variant at its
best. PyTorch (requirements-bench.txt) is needed for the third only. What has been done in ``--work`` is not done again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import measuring
from benchmarks.measuring import Report
from benchmarks.real_tasks import Classification, Scores, Squad
from benchmarks.samples import SQUAD_TRAINING
from benchmarks.settings import SIZES
from data_utils.squad.windows import Geometry

ByRate = dict[float, list[Scores]]  # one for each seed
Results = dict[str, dict[str, ByRate]]  # task → variant → learning rate

OURS, RANDOM, PYTORCH = "ours", "random", "pytorch"
TITLES = {
    OURS: "**this project, pre-trained here**",
    RANDOM: "the same from random weights",
    PYTORCH: "HF PyTorch from the same weights",
}
GUESSED = "guessing without looking (always the most frequent class; in SQuAD always the same words)"
BIASES = ("use_qkv_split", "use_qkv_bias", "use_projection_bias")
BATCH = 32
AS_CONFIGURED = {"warmup": 0.1, "weight_decay": 0.01, "epsilon": 1e-6}  # as the configs have them


class Recipe(NamedTuple):
    """How a task is trained: its config, and the settings that are given beside it.

    Attributes:
        stride, query: tokens, of SQuAD's windows. They are as long as the sequences of pre-training, because positions
            behind those are untrained.
        packed: samples in a row at most; the ``rows`` of a batch then hold about as many samples as ``BATCH``.
    """

    config: str
    length: int
    epochs: int
    learning_rate: float
    metrics: tuple[str, ...]
    stride: int = 0
    query: int = 0
    packed: int = 0
    rows: int = BATCH

    def configs(self) -> list[str]:
        return [str(measuring.REPOSITORY / "configs" / name) for name in (self.config, "systems/cpu.json")]


RECIPES = {
    "sst2": Recipe("glue/glue_tiny_checkpoint_path.json", 64, 2, 3e-4, ("accuracy",), packed=6, rows=8),
    "mrpc": Recipe("glue/glue_tiny_checkpoint_path.json", 128, 4, 3e-4, ("accuracy", "f1"), packed=2, rows=17),
    "squad": Recipe("squad/squad_tiny_checkpoint_path.json", 128, 2, 3e-4, ("exact_match", "f1"), 64, 32),
}


def task_of(name: str, data: Path, model: Path) -> Classification | Squad:
    """Return a task on the vocabulary of a Hugging Face folder."""
    recipe, vocabulary = RECIPES[name], model / "vocab.txt"
    if name == "squad":
        return Squad(data, vocabulary, Geometry(recipe.length, recipe.query, recipe.stride))
    return Classification(name, data, vocabulary, recipe.length)


class Study:
    """One pre-trained model, and a folder for all that is made of it."""

    def __init__(self, options: argparse.Namespace, work: Path):
        self._data, self._work, self._checkpoint = options.data.resolve(), work, options.checkpoint.resolve()
        self.exported = work / "exported"
        if not self.exported.exists():
            export = ["-m", "checkpoints.export", "--checkpoint", self._checkpoint, "--output", self.exported]
            measuring.command(*export, log=work / "export.log")
        self._theirs = json.loads((self.exported / "config.json").read_text(encoding="utf-8"))

    def scores(self, name: str, variant: str, rate: float, seed: int) -> Scores:
        """Train and evaluate once."""
        folder = self._work / f"{name}-{variant}-{rate:g}-{seed}"
        done = folder / "scores.json"
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a study that was stopped
            train = self._train_pytorch if variant == PYTORCH else self._train_ours
            train(name, variant, rate, seed, folder)
        found: Scores = json.loads(done.read_text(encoding="utf-8"))
        return found

    def _train_ours(self, name: str, variant: str, rate: float, seed: int, folder: Path) -> None:
        recipe = RECIPES[name]
        configs = [self._random_config(recipe)] if variant == RANDOM else recipe.configs()
        line = ["run_squad.py" if name == "squad" else "run_seq_classification.py", "--config", *configs]
        if name == "squad":
            line += ["--dataset-dir", self._data / "squad", "--squad.train-file", Path(SQUAD_TRAINING).name]
            line += ["--squad.doc-stride", recipe.stride, "--squad.max-query-length", recipe.query]
        else:
            line += ["--dataset-dir", self._data / "glue", "--glue-task", name]
        if recipe.packed:
            line += ["--packing.max-sequences-per-pack", recipe.packed, "--packing.adjust-betas", "false"]
            line += ["--global-batch.micro-batch-size", recipe.rows]
        if variant == OURS:
            vocabulary = self._theirs["vocab_size"]
            line += ["--pretrained-ckpt-path", self._checkpoint, "--bert-config.vocab-size", vocabulary]
        line += ["--max-seq-length", recipe.length, "--num-epochs", recipe.epochs, "--seed", seed]
        line += ["--optimizer-opts.learning-rate.max-learning-rate", rate]
        measuring.command(
            *line, "--output-dir", folder.parent, "--name", folder.name, log=self._work / f"{folder.name}.log"
        )

    def _random_config(self, recipe: Recipe) -> Path:
        """Write the recipe for a model of the checkpoint's sizes that starts from random weights."""
        kept = (*SIZES["tiny"].config(), "initializer_range", "max_position_embeddings", "vocab_size")
        sizes = {key: self._theirs[key] for key in kept}
        config: dict[str, Any] = {"extends": recipe.configs(), "bert_config": sizes}
        config.update(dict.fromkeys(BIASES, True), vocab_file=str(self.exported / "vocab.txt"))
        path = self._work / f"random-{Path(recipe.config).stem}.json"
        measuring.write_json(path, config)
        return path

    def _train_pytorch(self, name: str, variant: str, rate: float, seed: int, folder: Path) -> None:
        job = {"name": name, "model": str(self.exported), "data": str(self._data), "rate": rate, "seed": seed}
        scores = measuring.in_process("benchmarks.peers_pytorch:fine_tune", measuring.only("TORCH"), **job)
        folder.mkdir(parents=True, exist_ok=True)
        measuring.write_json(folder / "scores.json", scores)


def study(options: argparse.Namespace, work: Path) -> Results:
    """Return all scores."""
    made, results = Study(options, work), {}
    for name in options.tasks:
        found: dict[str, ByRate] = {}
        for seed in options.seeds:
            for variant in options.variants:
                for rate in options.learning_rates or [RECIPES[name].learning_rate]:
                    begin = time.monotonic()
                    scores = made.scores(name, variant, rate, seed)
                    found.setdefault(variant, {}).setdefault(rate, []).append(scores)
                    took = time.monotonic() - begin
                    figures = ", ".join(f"{metric} {scores[metric]:.4f}" for metric in RECIPES[name].metrics)
                    line = f"{name}, {variant}, {rate:g}, seed {seed}: {figures} ({took:.0f} s)"
                    print(line, file=sys.stderr, flush=True)
        found[GUESSED] = {0.0: [task_of(name, options.data, made.exported).guessed()]}
        results[name] = found
    return results


# --- The report ---


def best(name: str, found: ByRate) -> tuple[float, list[Scores]]:
    """Return the learning rate whose mean score, by the task's last metric, is the highest, and its scores."""
    metric = RECIPES[name].metrics[-1]
    return max(found.items(), key=lambda one: statistics.mean(scores[metric] for scores in one[1]), default=(0.0, []))


def cell(values: Sequence[float], percent: bool) -> str:
    """Return the mean, and the standard deviation where there are several seeds, in percent."""
    scale = 100 if percent else 1
    mean = f"{scale * statistics.mean(values):.1f}"
    return f"{mean} ± {scale * statistics.stdev(values):.1f}" if len(values) > 1 else mean


def table(results: Results) -> str:
    """Return a row for each variant at its best learning rate, a column for each metric."""
    columns = [(name, metric) for name in results for metric in RECIPES[name].metrics]
    rows = [["mean ± deviation", *(f"{name} {metric}" for name, metric in columns)]]
    for variant in dict.fromkeys(variant for found in results.values() for variant in found):
        cells = []
        for name, metric in columns:
            values = [scores[metric] for scores in best(name, results[name].get(variant, {}))[1]]
            cells.append(cell(values, percent=name != "squad") if values else measuring.NOTHING)
        rows.append([TITLES.get(variant, variant), *cells])
    return measuring.markdown(rows)


def rates(results: Results) -> str:
    """Return which learning rates the table has."""
    found = []
    for name, variants in results.items():
        chosen = [f"{kind} {best(name, of)[0]:g}" for kind, of in variants.items() if kind != GUESSED]
        found.append(f"{name}: {', '.join(chosen)}")
    return "learning rates: " + "; ".join(found)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "--checkpoint": {"required": True, "type": Path, "metavar": "RUN", "help": "of pre-training, by this project"},
    "--tasks": {"nargs": "+", "choices": RECIPES, "default": list(RECIPES), "help": "to fine-tune on"},
    "--variants": {"nargs": "+", "choices": TITLES, "default": list(TITLES), "help": "to be trained"},
    "--seeds": {"nargs": "+", "type": int, "default": [1, 2, 3], "help": "of each variant"},
    "--learning-rates": {"nargs": "+", "type": float, "help": "each variant at its best; None: the task's"},
    "--data": {"type": Path, "default": measuring.real_data_root(), "metavar": "DIR", "help": "has glue/ and squad/"},
    "--work": {"type": Path, "metavar": "DIR", "help": "keep runs here; None: a temporary folder"},
}


@measuring.benchmark(ARGUMENTS)
def main(options: argparse.Namespace) -> Report:
    measuring.require(["torch"] if PYTORCH in options.variants else [], otherwise="leave PyTorch out with --variants")
    folders = dict.fromkeys("squad" if name == "squad" else "glue" for name in options.tasks)
    measuring.require([], [options.data / folder for folder in folders], "name a folder with --data")
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        results = study(options, work)
    return Report([table(results), rates(results)], results)


if __name__ == "__main__":
    sys.exit(main())
