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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import measuring
from benchmarks.samples import SQUAD_TRAINING, Arrays
from benchmarks.settings import SIZES
from data_utils.classification.benchmarks import TASKS
from data_utils.classification.features import text_features
from data_utils.classification.reading import Examples, read_split
from data_utils.classification.scoring import predicted
from data_utils.squad.answers import best_answers
from data_utils.squad.examples import SquadSet, read_squad
from data_utils.squad.metric import score
from data_utils.squad.windows import Geometry, WindowReader, Windows, make_windows, squad_features
from data_utils.tokenizer import load_tokenizer, read_vocabulary
from tasks.classification import scores_of

Scores = dict[str, float]
ByRate = dict[float, list[Scores]]  # one for each seed
Results = dict[str, dict[str, ByRate]]  # task → variant → learning rate

OURS, RANDOM, PYTORCH = "ours", "random", "pytorch"
TITLES = {
    OURS: "**this project, pre-trained here**",
    RANDOM: "the same from random weights",
    PYTORCH: "HF PyTorch from the same weights",
}
GUESSED = "guessing without looking"
BIASES = ("use_qkv_split", "use_qkv_bias", "use_projection_bias")
BATCH = 32
AS_CONFIGURED = {"warmup": 0.1, "weight_decay": 0.01, "epsilon": 1e-6, "batch": BATCH}  # as the configs have them
LONGEST_GUESS = 12  # words, of the baseline for SQuAD


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


# --- What a task is to PyTorch and to a baseline: samples, scores of a model's outputs, and scores of guessing ---


class Classification:
    """A task of GLUE from the benchmark's own files."""

    def __init__(self, name: str, data: Path, vocabulary: Path, length: int):
        self._task, self._folder, self._length = TASKS[name], data / "glue", length
        self._tokenizer = load_tokenizer(str(vocabulary), True)
        self.classes: int | None = self._task.classes

    def _examples(self, train: bool) -> tuple[Examples, np.ndarray]:
        split = self._task.train if train else self._task.validation[0]
        examples = read_split(self._task, split, self._folder)
        assert examples is not None and examples.labels is not None, "training and validation sets have labels"
        return examples, examples.labels

    def training(self) -> Arrays:
        examples, labels = self._examples(train=True)
        return {**text_features(self._tokenizer, examples.texts, self._length).arrays, "labels": labels[:, None]}

    def evaluation(self) -> Arrays:
        return text_features(self._tokenizer, self._examples(train=False)[0].texts, self._length).arrays

    def scores(self, outputs: Arrays) -> Scores:
        return scores_of(self._task, predicted(self._task, outputs["logits"]), self._examples(train=False)[1])

    def guessed(self) -> Scores:
        """Always answer the class that is most frequent in training."""
        most_frequent = int(np.bincount(self._examples(train=True)[1]).argmax())
        labels = self._examples(train=False)[1]
        return scores_of(self._task, np.full_like(labels, most_frequent), labels)


class Squad:
    """SQuAD 1.1: the training questions that there are, and the whole development set."""

    classes: int | None = None

    def __init__(self, data: Path, vocabulary: Path, geometry: Geometry):
        self._train, self._dev = read_squad(data / SQUAD_TRAINING), read_squad(data / "squad" / "dev-v1.1.json")
        self._vocabulary, self._tokenizer = read_vocabulary(vocabulary), load_tokenizer(str(vocabulary), True)
        self._geometry = geometry
        self._windows = self._windows_of(self._dev, labels=False)

    def _windows_of(self, squad: SquadSet, labels: bool) -> Windows:
        return make_windows(squad, self._tokenizer, self._geometry, labels)

    def _arrays(self, windows: Windows, labels: bool) -> Arrays:
        spec = squad_features(self._geometry.max_seq_length, len(self._vocabulary.pieces), labels=labels)
        return WindowReader(spec, windows, self._vocabulary).read(np.arange(windows.count))

    def training(self) -> Arrays:
        return self._arrays(self._windows_of(self._train, labels=True), labels=True)

    def evaluation(self) -> Arrays:
        return self._arrays(self._windows, labels=False)

    def scores(self, outputs: Arrays) -> Scores:
        answers = best_answers(self._dev, self._windows, outputs["start_logits"], outputs["end_logits"], 20, 30)
        return self._scored(self._dev, {identity: found[0].text for identity, found in answers.items()})

    def guessed(self) -> Scores:
        """Always answer the words of the context from a to b, the a and b that score best in training."""
        places = [(a, b) for a in range(LONGEST_GUESS) for b in range(a + 1, a + 1 + LONGEST_GUESS)]
        best = max(places, key=lambda place: self._scored(self._train, dict(words_at(self._train, *place)))["f1"])
        return self._scored(self._dev, dict(words_at(self._dev, *best)))

    @staticmethod
    def _scored(squad: SquadSet, predictions: dict[str, str]) -> Scores:
        return score({q.id: [answer.text for answer in q.answers] for q in squad.questions}, predictions)[0]


def words_at(squad: SquadSet, begin: int, end: int) -> Iterator[tuple[str, str]]:
    """Yield the same words of every context as the answer to each question."""
    texts = [" ".join(paragraph.context.split(None, end)[begin:end]) for paragraph in squad.paragraphs]
    return ((question.id, texts[question.paragraph]) for question in squad.questions)


# --- Training ---


class Study:
    """One pre-trained model, and a folder for all that is made of it."""

    def __init__(self, options: argparse.Namespace, work: Path):
        self._data, self._work, self._checkpoint = options.data.resolve(), work, options.checkpoint.resolve()
        self._exported = work / "exported"
        if not self._exported.exists():
            export = ["-m", "checkpoints.export", "--checkpoint", self._checkpoint, "--output", self._exported]
            measuring.command(*export, log=work / "export.log")
        self._theirs = json.loads((self._exported / "config.json").read_text(encoding="utf-8"))

    def task(self, name: str) -> Classification | Squad:
        """Return the task on the model's vocabulary."""
        recipe, vocabulary = RECIPES[name], self._exported / "vocab.txt"
        if name == "squad":
            return Squad(self._data, vocabulary, Geometry(recipe.length, recipe.query, recipe.stride))
        return Classification(name, self._data, vocabulary, recipe.length)

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
        config.update(dict.fromkeys(BIASES, True), vocab_file=str(self._exported / "vocab.txt"))
        path = self._work / f"random-{Path(recipe.config).stem}.json"
        measuring.write_json(path, config)
        return path

    def _train_pytorch(self, name: str, variant: str, rate: float, seed: int, folder: Path) -> None:
        recipe, task = RECIPES[name], self.task(name)
        job = {"weights": str(self._exported), "classes": task.classes, "seed": seed, "epochs": recipe.epochs}
        job.update(AS_CONFIGURED, learning_rate=rate)
        with tempfile.TemporaryDirectory() as place:
            parts = {"train": task.training(), "dev": task.evaluation()}
            flat = {f"{part}/{key}": values for part, arrays in parts.items() for key, values in arrays.items()}
            measuring.write_json(Path(place) / "job.json", job)
            np.savez(Path(place) / "samples.npz", **flat)
            theirs = measuring.child_arguments("benchmarks.peers_pytorch:fine_tune", folder=place)
            measuring.command(*theirs, log=self._work / f"{folder.name}.log", **measuring.only("TORCH"))
            with np.load(Path(place) / "outputs.npz", allow_pickle=False) as outputs:
                scores = task.scores(dict(outputs))
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
        found[GUESSED] = {0.0: [made.task(name).guessed()]}
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
            cells.append(cell(values, percent=name != "squad") if values else "–")
        rows.append([TITLES.get(variant, variant), *cells])
    return measuring.markdown(rows)


def rates(results: Results) -> str:
    """Return which learning rates the table has."""
    found = []
    for name, variants in results.items():
        chosen = [f"{kind} {best(name, of)[0]:g}" for kind, of in variants.items() if kind != GUESSED]
        found.append(f"{name}: {', '.join(chosen)}")
    return "learning rates: " + "; ".join(found)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = measuring.parser_of("fine_tuning", __doc__)
    text = "of pre-training, by this project"
    parser.add_argument("--checkpoint", required=True, type=Path, metavar="RUN", help=text)
    parser.add_argument("--tasks", nargs="+", choices=RECIPES, default=list(RECIPES), help="default: all")
    parser.add_argument("--variants", nargs="+", choices=TITLES, default=list(TITLES), help="default: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="default: 1 2 3")
    text = "each variant at its best; default: the task's"
    parser.add_argument("--learning-rates", nargs="+", type=float, metavar="RATE", help=text)
    parser.add_argument(
        "--data", type=Path, default=measuring.real_data_root(), metavar="DIR", help="has glue/ and squad/"
    )
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep runs here; default: a temporary folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all scores")
    return parser.parse_args(arguments)


@measuring.command_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Train, and print the table on standard output."""
    options = parse(arguments)
    measuring.require(["torch"] if PYTORCH in options.variants else [], otherwise="leave PyTorch out with --variants")
    folders = dict.fromkeys("squad" if name == "squad" else "glue" for name in options.tasks)
    measuring.require([], [options.data / folder for folder in folders], "name a folder with --data")
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        results = study(options, work)
    measuring.print_report(table(results), rates(results))
    measuring.write_json(options.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
