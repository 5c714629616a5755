"""Fine-tuning speed on SQuAD and SST-2, and Hugging Face's: ``python -m benchmarks.fine_tuning_speed``.

Samples are those of real questions and sentences, in random order. Hugging Face pads each batch to its longest sample;
this project packs. Every competitor trains the same model in a process of its own; the processes take turns.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import measuring
from benchmarks.measuring import Measured
from benchmarks.pretraining import (
    AUTO,
    FLOAT32,
    MEMORY,
    OURS,
    OURS_FLOAT32,
    PYTORCH,
    SPEED,
    Competitor,
    peak_memory,
    speed_tables,
)
from benchmarks.real_tasks import Classification, Squad
from benchmarks.samples import SQUAD_TRAINING, WORDS, Arrays, iterate_batches, unpadded
from benchmarks.settings import SEED, SIZES, VOCABULARY, Trainer, make_architecture
from data_utils.classification.features import classification_features
from data_utils.command_line import positive
from data_utils.squad.windows import Geometry, squad_features
from model.architecture import Architecture
from model.tasks import CLASSIFICATION, SQUAD

WARM_UP = 6
MOST = 8192  # samples to prepare
Prepared = tuple[Trainer, float]  # how to train a number of steps, and the samples in a step


class Task(NamedTuple):
    """A task to train on.

    Attributes:
        length: most tokens of a sample.
        batch: samples of a weight update; with packs, on average.
        most_in_pack: most samples in a pack.
        files: in the folder of real data.
    """

    name: str
    title: str
    length: int
    batch: int
    most_in_pack: int
    files: tuple[str, ...]

    def samples(self, data: Path) -> Arrays:
        """Return the training samples, padded, in random order."""
        words = data / WORDS
        if self.name == SQUAD:
            arrays = Squad(data, words, Geometry(self.length, 64, 128)).training(MOST)
        else:
            arrays = Classification("sst2", data, words, self.length).training(MOST)
        order = np.random.default_rng(SEED).permutation(len(arrays["input_ids"]))
        return {name: values[order] for name, values in arrays.items()}


TASKS = {
    "squad": Task(SQUAD, "windows of SQuAD", 384, 8, 6, (SQUAD_TRAINING, WORDS)),
    "sst2": Task(CLASSIFICATION, "sentences of SST-2", 64, 32, 6, ("glue/SST-2", WORDS)),
}


def _ours(precision: str, task: Task, architecture: Architecture, samples: Arrays, steps: int) -> Prepared:
    from benchmarks.ours import cpu_platform, trainer
    from data_utils.records.arrays import ArrayReader
    from data_utils.records.packs import make_rows, sequences_per_pack

    features = squad_features if task.name == SQUAD else partial(classification_features, classes=2)
    padded = ArrayReader(features(task.length, VOCABULARY), samples)
    lengths = samples["input_mask"].sum(axis=1)
    reader = make_rows(padded, lengths, task.most_in_pack, SEED, task.name == CLASSIFICATION)
    in_a_row = sequences_per_pack(reader)
    rows = max(1, round(task.batch / in_a_row))
    platform = cpu_platform(precision=precision)
    return trainer(task.name, architecture, reader, rows, steps, platform), rows * in_a_row


def _pytorch(task: Task, architecture: Architecture, samples: Arrays, steps: int, **way: bool) -> Prepared:
    from benchmarks.peers_pytorch import trainer

    batches = iterate_batches(samples, task.batch, unpadded)
    return trainer(task.name, architecture, batches, **way), task.batch


COMPETITORS = {
    OURS: Competitor("**this project**, packed, precision auto", partial(_ours, AUTO)),
    OURS_FLOAT32: Competitor("this project, packed, float32", partial(_ours, FLOAT32)),
    **{
        name: Competitor(f"PyTorch, {title}", partial(_pytorch, **way), "TORCH")
        for name, (title, way) in PYTORCH.items()
    },
}


def measure(competitor: str, task: str, size: str, data: str, steps: int) -> measuring.Values:
    """Warm up and train, in this process."""
    samples = TASKS[task].samples(Path(data))
    train, samples_in_a_step = COMPETITORS[competitor].prepare(TASKS[task], make_architecture(size), samples, steps)
    train(1)
    train(WARM_UP - 1)
    return {SPEED: steps * samples_in_a_step / train(steps), MEMORY: peak_memory()}


def report(measured: Measured, options: argparse.Namespace) -> list[str]:
    """Return medians, and ratios taken within a round."""
    cases = [f"{task}, {size}" for task in options.tasks for size in options.sizes]
    titles = {name: COMPETITORS[name].title for name in options.competitors}
    tasks = [TASKS[name] for name in options.tasks]
    tasks_text = "; ".join(f"{task.title}, at most {task.length} tokens, {task.batch} per update" for task in tasks)
    about = (
        f"Fine-tuning on {tasks_text}; dropout 0.1, AdamW; median (min–max) of {options.rounds} processes in"
        " alternation. Hugging Face pads each batch to its longest sample."
    )
    return [about, *speed_tables(measured, titles, cases)]


ARGUMENTS: dict[str, dict[str, Any]] = {
    "--tasks": {"nargs": "+", "choices": TASKS, "default": list(TASKS), "help": "to fine-tune on"},
    "--sizes": {"nargs": "+", "choices": SIZES, "default": ["mini", "base"], "help": "size of the model"},
    "--competitors": {"nargs": "+", "choices": COMPETITORS, "default": list(COMPETITORS), "help": "to be measured"},
    "--steps": {"type": positive, "metavar": "N", "help": "measured steps of a process; None: depends on the size"},
}


@measuring.benchmark(ARGUMENTS, rounds=3)
def main(options: argparse.Namespace) -> list[str]:
    with_pytorch = any(COMPETITORS[name].framework == "TORCH" for name in options.competitors)
    measuring.require(["torch"] if with_pytorch else [], otherwise="leave PyTorch out with --competitors")
    data = measuring.real_data_root()
    measuring.require([], [data / file for task in options.tasks for file in TASKS[task].files])

    def process(competitor: str, task: str, size: str) -> measuring.Values:
        job = {"competitor": competitor, "task": task, "size": size, "data": str(data.resolve())}
        steps = options.steps or SIZES[size].steps
        return measuring.in_process(measure, measuring.only(COMPETITORS[competitor].framework), **job, steps=steps)

    variants = {
        (name, f"{task}, {size}"): partial(process, name, task, size)
        for task in options.tasks
        for size in options.sizes
        for name in options.competitors
    }
    return report(measuring.alternate(variants, options.rounds), options)


if __name__ == "__main__":
    sys.exit(main())
