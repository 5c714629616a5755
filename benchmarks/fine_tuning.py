"""What pre-training is worth: ``python -m benchmarks.fine_tuning --checkpoint RUN``.

Fine-tunes a model pre-trained by this project on SST-2, MRPC and SQuAD, through the product's own commands. Beside it:
the same model from random weights; the same weights, exported, in a plain PyTorch loop on Hugging Face's model; and the
best answer that does not look at the sample. Several seeds each; with several learning rates, each variant at its
best. PyTorch (requirements-bench.txt) is needed for the third only. What has been done in ``--work`` is not done again.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.commands import REPOSITORY, command, only
from benchmarks.fine_tuning_tasks import SQUAD_TRAINING, Scores, task_of
from benchmarks.tables import machine, markdown, with_pytorch
from tests.real_data import real_data_root
from utilities.environment import environment_facts
from utilities.errors import UserError

OURS, RANDOM, PYTORCH = "ours", "random", "pytorch"
TITLES = {
    OURS: "**this project, pre-trained here**",
    RANDOM: "the same from random weights",
    PYTORCH: "HF PyTorch from the same weights",
}
ByRate = dict[float, list[Scores]]  # one for each seed
Results = dict[str, dict[str, ByRate]]  # task → variant → learning rate
GUESSED = "guessing without looking"
SIZES = (
    "initializer_range",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
BIASES = ("use_qkv_split", "use_qkv_bias", "use_projection_bias")
WARM_UP, WEIGHT_DECAY, EPSILON, BATCH = 0.1, 0.01, 1e-6, 32  # as the fine-tuning configs have them


class Recipe(NamedTuple):
    """How a task is trained: its config, and the settings that are given beside it."""

    config: str
    length: int
    epochs: int
    learning_rate: float
    metrics: tuple[str, ...]
    stride: int = 0  # of windows as long as the sequences of pre-training: positions behind them are untrained
    query: int = 0
    packed: int = 0  # samples in a row at most; the rows of a batch then hold about as many samples as BATCH
    rows: int = BATCH


RECIPES = {
    "sst2": Recipe("glue/glue_tiny_checkpoint_path.json", 64, 2, 3e-4, ("accuracy",), packed=6, rows=8),
    "mrpc": Recipe("glue/glue_tiny_checkpoint_path.json", 128, 4, 3e-4, ("accuracy", "f1"), packed=2, rows=17),
    "squad": Recipe("squad/squad_tiny_checkpoint_path.json", 128, 2, 3e-4, ("exact_match", "f1"), 64, 32),
}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fine_tuning", description=__doc__)
    parser.add_argument(
        "--checkpoint", required=True, type=Path, metavar="RUN", help="of pre-training, by this project"
    )
    parser.add_argument("--tasks", nargs="+", choices=RECIPES, default=list(RECIPES), help="default: all")
    parser.add_argument("--variants", nargs="+", choices=TITLES, default=list(TITLES), help="default: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="default: 1 2 3")
    parser.add_argument(
        "--learning-rates", nargs="+", type=float, metavar="RATE", help="each variant at its best; default: the task's"
    )
    parser.add_argument("--data", type=Path, default=real_data_root(), metavar="DIR", help="has glue/ and squad/")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep runs here; default: a temporary folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all scores")
    return parser.parse_args(arguments)


class Study:
    """One pre-trained model, and a folder for all that is made of it."""

    def __init__(self, options: argparse.Namespace, work: Path):
        self._data, self._work, self._checkpoint = options.data.resolve(), work, options.checkpoint.resolve()
        self.exported = work / "exported"
        if not self.exported.exists():
            export = ["-m", "checkpoints.export", "--checkpoint", self._checkpoint, "--output", self.exported]
            command(*export, log=work / "export.log")
        self._theirs = json.loads((self.exported / "config.json").read_text(encoding="utf-8"))
        self._vocab_size = str(self._theirs["vocab_size"])

    def task(self, name: str) -> Any:
        """The task on the model's vocabulary."""
        recipe = RECIPES[name]
        return task_of(name, self._data, self.exported / "vocab.txt", recipe.length, recipe.query, recipe.stride)

    def scores(self, name: str, variant: str, rate: float, seed: int) -> Scores:
        """Trains and evaluates once."""
        folder = self._work / f"{name}-{variant}-{rate:g}-{seed}"
        done = folder / "scores.json"
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a study that was broken off
            if variant == PYTORCH:
                self._pytorch(name, rate, seed, folder)
            else:
                self._product(name, variant, rate, seed, folder)
        found: Scores = json.loads(done.read_text(encoding="utf-8"))
        return found

    def _product(self, name: str, variant: str, rate: float, seed: int, folder: Path) -> None:
        recipe = RECIPES[name]
        line = ["run_squad.py" if name == "squad" else "run_seq_classification.py"]
        line += ["--config", *map(str, [self._random_config(recipe)] if variant == RANDOM else configs_of(recipe))]
        line += ["--dataset-dir", str(self._data / ("squad" if name == "squad" else "glue"))]
        if name == "squad":
            line += ["--squad.train-file", SQUAD_TRAINING, "--squad.doc-stride", str(recipe.stride)]
            line += ["--squad.max-query-length", str(recipe.query)]
        else:
            line += ["--glue-task", name]
        if recipe.packed:
            line += ["--packing.max-sequences-per-pack", str(recipe.packed), "--packing.adjust-betas", "false"]
            line += ["--global-batch.micro-batch-size", str(recipe.rows)]
        if variant == OURS:
            line += ["--pretrained-ckpt-path", str(self._checkpoint), "--bert-config.vocab-size", self._vocab_size]
        line += ["--max-seq-length", str(recipe.length), "--num-epochs", str(recipe.epochs), "--seed", str(seed)]
        line += ["--optimizer-opts.learning-rate.max-learning-rate", str(rate)]
        command(*line, "--output-dir", folder.parent, "--name", folder.name, log=self._work / f"{folder.name}.log")

    def _random_config(self, recipe: Recipe) -> Path:
        """The recipe for a model of the checkpoint's sizes that starts from random weights."""
        sizes = {key: self._theirs[key] for key in (*SIZES, "vocab_size")}
        config: dict[str, Any] = {"extends": [str(path) for path in configs_of(recipe)], "bert_config": sizes}
        config.update(dict.fromkeys(BIASES, True), vocab_file=str(self.exported / "vocab.txt"))
        path = self._work / f"random-{Path(recipe.config).stem}.json"
        path.write_text(json.dumps(config, indent=2), encoding="utf-8")
        return path

    def _pytorch(self, name: str, rate: float, seed: int, folder: Path) -> None:
        recipe, task = RECIPES[name], self.task(name)
        job = {"weights": str(self.exported), "classes": task.classes, "seed": seed, "epochs": recipe.epochs}
        job.update(learning_rate=rate, warmup=WARM_UP, weight_decay=WEIGHT_DECAY)
        job.update(epsilon=EPSILON, batch=BATCH)
        with tempfile.TemporaryDirectory() as place:
            parts = {"train": task.training(), "dev": task.evaluation()}
            flat = {f"{part}/{key}": values for part, arrays in parts.items() for key, values in arrays.items()}
            (Path(place) / "job.json").write_text(json.dumps(job), encoding="utf-8")
            np.savez(Path(place) / "samples.npz", **flat)
            theirs = ["-m", "benchmarks.competitors.hf_fine_tuning", place]
            command(*theirs, log=self._work / f"{folder.name}.log", **only("TORCH"))
            with np.load(Path(place) / "outputs.npz", allow_pickle=False) as outputs:
                scores = task.scores(dict(outputs))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "scores.json").write_text(json.dumps(scores), encoding="utf-8")


def configs_of(recipe: Recipe) -> list[Path]:
    """The product's config, and what makes it one for a CPU."""
    return [REPOSITORY / "configs" / recipe.config, REPOSITORY / "configs" / "systems" / "cpu.json"]


def cell(values: list[float], percent: bool) -> str:
    """Mean and deviation, in percent."""
    scaled = [100 * value if percent else value for value in values]
    deviation = f" ± {statistics.stdev(scaled):.1f}" if len(scaled) > 1 else ""
    return f"{statistics.mean(scaled):.1f}{deviation}"


def table(results: Results) -> str:
    """A row for each variant at its best learning rate, a column for each metric."""
    columns = [(name, metric) for name in results for metric in RECIPES[name].metrics]
    rows = [["mean ± deviation", *(f"{name} {metric}" for name, metric in columns)]]
    for variant in (*TITLES, GUESSED):
        if any(variant in found for found in results.values()):
            cells = []
            for name, metric in columns:
                _, scores = best(name, results[name].get(variant, {}))
                values = [one[metric] for one in scores]
                cells.append(cell(values, percent=name != "squad") if values else "–")
            rows.append([TITLES.get(variant, variant), *cells])
    return markdown(rows)


def best(name: str, found: ByRate) -> tuple[float, list[Scores]]:
    """The learning rate whose mean score, by the task's last metric, is the highest, and its scores."""
    metric = RECIPES[name].metrics[-1]
    return max(found.items(), key=lambda one: statistics.mean(scores[metric] for scores in one[1]), default=(0.0, []))


def rates(results: Results) -> str:
    """Which learning rates the table has."""
    found = [
        f"{name}: "
        + ", ".join(f"{variant} {best(name, of)[0]:g}" for variant, of in variants.items() if variant != GUESSED)
        for name, variants in results.items()
    ]
    return "learning rates: " + "; ".join(found)


def study(options: argparse.Namespace, work: Path) -> Results:
    """All scores."""
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
                    told = ", ".join(f"{metric} {scores[metric]:.4f}" for metric in RECIPES[name].metrics)
                    print(
                        f"{name}, {variant}, {rate:g}, seed {seed}: {told} ({took:.0f} s)", file=sys.stderr, flush=True
                    )
        found[GUESSED] = {0.0: [made.task(name).guessed()]}
        results[name] = found
    return results


def main(arguments: list[str] | None = None) -> int:
    """Train, and print the table on standard output."""
    options = parse(arguments)
    if PYTORCH in options.variants and importlib.util.find_spec("torch") is None:
        need = "PyTorch is not installed; run `pip install -r requirements-bench.txt`, or leave it out with --variants"
        print(f"error: {need}", file=sys.stderr)
        return 2
    try:
        if options.work is not None:
            options.work.mkdir(parents=True, exist_ok=True)
            results = study(options, options.work.resolve())
        else:
            with tempfile.TemporaryDirectory() as work:
                results = study(options, Path(work))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n\n".join([machine(with_pytorch(environment_facts())), table(results), rates(results)]))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
