"""Fine-tunes a checkpoint here and in HF's Trainer: ``python -m benchmarks.fine_tuning --checkpoint PATH``.

PATH is a model that this project has pre-trained, or a Hugging Face folder of a BERT. It is fine-tuned by this
project's commands on SST-2, MRPC, CoLA, SQuAD, and on pairs of a question and a sentence, made of SQuAD as own CSV
files. It is compared with the same model from random weights, the same weights in Hugging Face's ``Trainer``, and the
best answer that ignores the sample. Each run evaluates every epoch and reports the best one. Each variant is trained
with several seeds. PyTorch and Accelerate (requirements-bench.txt) are needed for the ``Trainer`` only. Runs that are
complete in ``--work`` are not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import measuring
from benchmarks.real_tasks import PAIR_FILES, PAIRS, Classification, Scores, Squad, write_json, write_samples
from benchmarks.samples import SQUAD_TRAINING
from benchmarks.settings import SIZES
from data_utils.command_line import positive
from data_utils.squad.windows import Geometry
from model.tasks import SQUAD
from utilities.files import PROJECT

Results = dict[str, dict[str, list[Scores]]]  # task → variant → one for each seed

OURS, RANDOM, PYTORCH = "ours", "random", "pytorch"
TITLES = {
    OURS: "**this project**",
    RANDOM: "the same from random weights",
    PYTORCH: "HF Trainer (PyTorch) from the same weights",
}
GUESSED = "guessing without looking (always the most frequent class; in SQuAD always the same words)"
BIASES = ("use_qkv_split", "use_qkv_bias", "use_projection_bias")
SECONDS = "seconds"  # of a whole run, from the start of its process to its scores
ADAMW = {"warmup": 0.1, "weight_decay": 0.01, "epsilon": 1e-6}


class Recipe(NamedTuple):
    """How a task is trained.

    Attributes:
        metrics: the last one decides which evaluation is the best.
        stride, query: tokens of SQuAD's windows.
        packed: most samples in a row; the ``rows`` of a batch then contain about as many samples as ``batch``.
        samples, evaluated: most samples for training and evaluation, evenly spread; None: all.
    """

    length: int
    epochs: int
    learning_rate: float
    metrics: tuple[str, ...]
    stride: int = 0
    query: int = 0
    packed: int = 0
    rows: int = 32
    batch: int = 32
    samples: int | None = None
    evaluated: int | None = None


# SQuAD's windows are as long as the sequences of pre-training, because positions behind those are untrained.
PRETRAINED_HERE = {
    "sst2": Recipe(64, 2, 3e-4, ("accuracy",), packed=6, rows=8),
    "mrpc": Recipe(128, 4, 3e-4, ("accuracy", "f1"), packed=2, rows=17),
    "cola": Recipe(64, 4, 3e-4, ("matthews",), packed=6, rows=8),
    PAIRS: Recipe(128, 2, 3e-4, ("accuracy",), packed=2, rows=17),
    SQUAD: Recipe(128, 2, 3e-4, ("exact_match", "f1"), 64, 32),
}
RELEASED = {
    "sst2": Recipe(64, 2, 1e-4, ("accuracy",), packed=6, rows=7, samples=2500),
    "mrpc": Recipe(128, 2, 1e-4, ("accuracy", "f1"), packed=3, rows=7, batch=16, samples=1200),
    "cola": Recipe(64, 2, 1e-4, ("matthews",), packed=6, rows=7, samples=2500),
    PAIRS: Recipe(128, 2, 1e-4, ("accuracy",), packed=3, rows=7, batch=16, samples=1200, evaluated=400),
    SQUAD: Recipe(
        384, 1, 1e-4, ("exact_match", "f1"), 128, 64,
        packed=3, rows=4, batch=8, samples=600, evaluated=200,
    ),
}  # fmt: skip


def make_task(name: str, recipe: Recipe, data: Path, model: Path) -> Classification | Squad:
    if name == SQUAD:
        return Squad(data, model, Geometry(recipe.length, recipe.query, recipe.stride))
    return Classification(name, data, model, recipe.length)


class Study:
    """One pre-trained model, and a folder for all runs that start from it.

    Attributes:
        model: Hugging Face folder of the model.
        data: folder with the samples of all tasks, laid out as the folder of real data.
        counts: number of samples for training and evaluation, by task.
    """

    def __init__(self, options: argparse.Namespace, work: Path):
        self._work, self._checkpoint = work, options.checkpoint.resolve()
        self._is_released = (self._checkpoint / "config.json").is_file()
        self.recipes = RELEASED if self._is_released else PRETRAINED_HERE
        self.data, self.counts = work / "data", {}
        for name in options.tasks:
            most = (options.samples or self.recipes[name].samples, self.recipes[name].evaluated)
            parts = zip((True, False), most)
            self.counts[name] = [write_samples(name, train, options.data, self.data, limit) for train, limit in parts]
        self.model = self._checkpoint if self._is_released else work / "exported"
        if not self.model.exists():
            export = ["-m", "checkpoints.export", "--checkpoint", self._checkpoint, "--output", self.model]
            measuring.command(*export, log=work / "export.log")
        self._theirs = json.loads((self.model / "config.json").read_text(encoding="utf-8"))

    @cached_property
    def number_format(self) -> str:
        """The number format of ``precision`` auto on this machine; PyTorch computes in the same."""
        name: str = measuring.in_process("benchmarks.ours:number_format", precision="auto")
        return name

    def task(self, name: str) -> Classification | Squad:
        return make_task(name, self.recipes[name], self.data, self.model)

    def scores(self, name: str, variant: str, seed: int) -> Scores:
        """Train and evaluate once, and return the scores with ``SECONDS``."""

        def train(folder: Path) -> Scores:
            bfloat16 = self.number_format == "mixed_bfloat16"
            begin = time.monotonic()
            if variant == PYTORCH:
                scores = self._train_pytorch(name, seed, bfloat16)
            else:
                scores = self._train_ours(name, variant, seed, folder)
            return {**scores, SECONDS: time.monotonic() - begin}

        scores: Scores = measuring.once(self._work / f"{name}-{variant}-{seed}" / "study.json", train)
        return scores

    def _train_ours(self, name: str, variant: str, seed: int, folder: Path) -> Scores:
        program = "run_squad.py" if name == SQUAD else "run_seq_classification.py"
        line = [program, "--config", self.config(name, variant), "--seed", seed]
        measuring.command(*line, "--output-dir", folder, "--name", "run", log=folder / "run.log")
        scores: Scores = json.loads((folder / "run" / "scores.json").read_text(encoding="utf-8"))
        return scores

    def config(self, name: str, variant: str) -> Path:
        recipe = self.recipes[name]
        config: dict[str, Any] = {
            "extends": str(PROJECT / "configs" / "fine_tuning.json"),
            "dataset_dir": str(self.data / (name if name in (SQUAD, PAIRS) else "glue")),
            "max_seq_length": recipe.length,
            "num_epochs": recipe.epochs,
            "global_batch": {"micro_batch_size": recipe.rows, "replicas": 1, "grad_acc_steps_per_replica": 1},
            "optimizer_opts": {
                "name": "AdamW",
                "weight_decay_rate": ADAMW["weight_decay"],
                "epsilon": ADAMW["epsilon"],
                "learning_rate": {"warmup_frac": ADAMW["warmup"], "max_learning_rate": recipe.learning_rate},
            },
            "evaluation": {"every": "epoch", "metric": recipe.metrics[-1]},
            "global_batches_per_log": 10,
            "keep_last": 1,
        }
        if name == SQUAD:
            file = Path(SQUAD_TRAINING).name
            config["squad"] = {"train_file": file, "doc_stride": recipe.stride, "max_query_length": recipe.query}
        else:
            config.update({"classification_data": PAIR_FILES} if name == PAIRS else {"glue_task": name})
        if recipe.packed:
            config["packing"] = {"max_sequences_per_pack": recipe.packed, "adjust_betas": False}
        path = self._work / f"{name}-{variant}.json"
        write_json(path, {**config, **self._start(variant)})
        return path

    def _start(self, variant: str) -> dict[str, Any]:
        """Return the part of a config that selects the weights to start from."""
        kept = (*SIZES["tiny"].config(), "initializer_range", "max_position_embeddings", "vocab_size")
        sizes = {key: self._theirs[key] for key in kept}
        if variant == RANDOM:
            options: dict[str, Any] = dict.fromkeys(BIASES, True)
            return {"bert_model_name": None, "bert_config": sizes, "vocab_file": str(self.model), **options}
        if self._is_released:
            return {"bert_model_name": str(self._checkpoint)}
        return {"pretrained_ckpt_path": str(self._checkpoint), "bert_config": sizes}

    def _train_pytorch(self, name: str, seed: int, bfloat16: bool) -> Scores:
        job: dict[str, Any] = {"name": name, "recipe": self.recipes[name]._asdict(), "seed": seed, "bfloat16": bfloat16}
        job.update(model=str(self.model), data=str(self.data))
        scores: Scores = measuring.in_process("benchmarks.peers_pytorch:fine_tune", measuring.only("TORCH"), **job)
        return scores


def study(made: Study, options: argparse.Namespace) -> Results:
    results: Results = {}
    for name in options.tasks:
        recipe = made.recipes[name]
        by_variant: dict[str, list[Scores]] = {}
        for seed in options.seeds:
            for variant in options.variants:
                scores = made.scores(name, variant, seed)
                by_variant.setdefault(variant, []).append(scores)
                figures = ", ".join(f"{metric} {scores[metric]:.4f}" for metric in recipe.metrics)
                line = f"{name}, {variant}, seed {seed}: {figures} ({scores[SECONDS]:.0f} s)"
                print(line, file=sys.stderr, flush=True)
        by_variant[GUESSED] = [made.task(name).guessed()]
        results[name] = by_variant
    return results


def cell(values: Sequence[float], percent: bool) -> str:
    """Return the mean and, for several seeds, the standard deviation, in percent."""
    scale = 100 if percent else 1
    mean = f"{scale * statistics.mean(values):.1f}"
    return f"{mean} ± {scale * statistics.stdev(values):.1f}" if len(values) > 1 else mean


def table(results: Results, recipes: Mapping[str, Recipe]) -> str:
    """Return a row for each variant, and columns for the metrics and the time of each task."""
    columns = [(name, value) for name in results for value in (*recipes[name].metrics, SECONDS)]
    rows = [["mean ± deviation", *(f"{name} {value}" for name, value in columns)]]
    for variant in dict.fromkeys(variant for by_variant in results.values() for variant in by_variant):
        cells = []
        for name, value in columns:
            values = [scores[value] for scores in results[name].get(variant, []) if value in scores]
            percent = name != SQUAD and value != SECONDS
            cells.append(cell(values, percent) if values else measuring.NOTHING)
        rows.append([TITLES.get(variant, variant), *cells])
    return measuring.markdown(rows)


def describe(made: Study) -> str:
    lines = [f"Number format, of PyTorch too: {made.number_format} (precision auto)"]
    for name, (samples, evaluated) in made.counts.items():
        recipe = made.recipes[name]
        packed = ", packed by this project" if recipe.packed else ""
        lines.append(
            f"{name}: {samples:,} samples, {recipe.epochs} times, in batches of {recipe.batch}; at most {recipe.length}"
            f" tokens{packed}; {evaluated:,} samples of evaluation; learning rate {recipe.learning_rate:g}"
        )
    return "\n".join(lines)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "--checkpoint": {"required": True, "type": Path, "metavar": "PATH", "help": "run of pre-training, or HF folder"},
    "--tasks": {"nargs": "+", "choices": RELEASED, "default": list(RELEASED), "help": "to fine-tune on"},
    "--variants": {"nargs": "+", "choices": TITLES, "default": list(TITLES), "help": "to be trained"},
    "--seeds": {"nargs": "+", "type": int, "default": [1, 2, 3], "help": "seeds of each variant"},
    "--samples": {"type": positive, "metavar": "N", "help": "most to train on; None: the task's"},
    "--data": {"type": Path, "default": measuring.real_data_root(), "metavar": "DIR", "help": "with glue/ and squad/"},
    "--work": {"type": Path, "metavar": "DIR", "help": "keep runs here; None: a temporary folder"},
}


@measuring.benchmark(ARGUMENTS)
def main(options: argparse.Namespace) -> list[str]:
    packages = ["torch", "accelerate"] if PYTORCH in options.variants else []
    measuring.require(packages, otherwise="leave PyTorch out with --variants")
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        made = Study(options, work)
        results = study(made, options)
        return [table(results, made.recipes), describe(made)]


if __name__ == "__main__":
    sys.exit(main())
