"""Training speed and memory, and Hugging Face's in TensorFlow and PyTorch: ``python -m benchmarks.speed``.

Every competitor trains the same model on the same data in a process of its own; the processes take turns.

Samples of pre-training are random words, in full rows or in sequences as long as Wikipedia's. Those of SQuAD and SST-2
are real questions and sentences in random order: Hugging Face pads each batch to its longest sample, and this project
packs.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks import measuring
from benchmarks.measuring import CPU, Column, Measured, real_data_root
from benchmarks.samples import (
    SQUAD_TRAINING,
    WORDS,
    Arrays,
    full_sequences,
    iterate_batches,
    packed_samples,
    pretraining_spec,
    select_rows,
    unpadded,
)
from benchmarks.settings import (
    MICRO_BATCH,
    SEED,
    SEQUENCE_LENGTH,
    SIZES,
    VOCABULARY,
    Trainer,
    make_architecture,
)
from data_utils.command_line import positive
from data_utils.records.arrays import ArrayReader
from data_utils.records.pipeline import SampleReader
from model.architecture import Architecture
from model.tasks import CLASSIFICATION, PRETRAINING, SQUAD

SPEED, MEMORY, FIRST_STEP = "samples_per_second", "peak_memory_mib", "first_step_seconds"
AUTO, FLOAT32 = "auto", "float32"
MOST_SAMPLES = 8192  # of fine-tuning
LENGTHS = 1024  # rows with lengths of Wikipedia
MOST_IN_PACK = 6  # samples of fine-tuning


class Task(NamedTuple):
    """A task to train on.

    Attributes:
        name: the model's task.
        title: what a sample is.
        length: most tokens of a sample.
        batch: samples of a weight update; with packs, on average.
        gpu_batch: the same on a GPU.
        files: in the folder of real data.
    """

    name: str
    title: str
    length: int
    batch: int
    gpu_batch: int
    files: tuple[str, ...] = ()


SST2, LONG, WIKIPEDIA = "sst2", "pretraining-512", "wikipedia-512"
TASKS = {
    PRETRAINING: Task(PRETRAINING, "full rows of random words", SEQUENCE_LENGTH, MICRO_BATCH, 128),
    LONG: Task(PRETRAINING, "full rows of random words", 512, 2, 32),
    WIKIPEDIA: Task(PRETRAINING, "random words in sequences as long as Wikipedia's", 512, 4, 64),
    SQUAD: Task(SQUAD, "windows of SQuAD", 384, 8, 32, (SQUAD_TRAINING, WORDS)),
    SST2: Task(CLASSIFICATION, "sentences of SST-2", 64, 32, 32, ("glue/SST-2", WORDS)),
}

# --- Competitors, each in a process of its own; imports are inside, because Transformers loads one framework ---

Prepared = tuple[Trainer, float]  # how to train a number of steps, and the samples in a step


class Job(NamedTuple):
    """What a competitor trains.

    Attributes:
        steps: largest number of steps of an execution.
        device: ``CPU`` or ``GPU``.
    """

    task: Task
    architecture: Architecture
    steps: int
    device: str

    @property
    def batch(self) -> int:
        """Samples of a weight update."""
        return self.task.batch if self.device == CPU else self.task.gpu_batch


def make_samples(task: Task) -> Arrays:
    if task == TASKS[WIKIPEDIA]:
        padded, _ = packed_samples(task.length, LENGTHS, VOCABULARY)
        return padded.read(np.arange(padded.count))
    if task.name == PRETRAINING:
        return full_sequences(task.length)
    from benchmarks.real_tasks import Classification, Squad
    from data_utils.squad.windows import Geometry

    data = real_data_root()
    if task.name == SQUAD:
        arrays = Squad(data, data / WORDS, Geometry(task.length, 64, 128)).training(MOST_SAMPLES)
    else:
        arrays = Classification(SST2, data, data / WORDS, task.length).training(MOST_SAMPLES)
    return select_rows(arrays, np.random.default_rng(SEED).permutation(len(arrays["input_ids"])))


def _ours(precision: str, job: Job, samples: Arrays) -> Prepared:
    from benchmarks.ours import platform_of, trainer
    from data_utils.records.packs import sequences_per_pack

    platform, rows = platform_of(job.device, precision=precision), _rows(job.task, samples)
    in_a_row = sequences_per_pack(rows)  # 1 for full sequences
    batch = max(1, round(job.batch / in_a_row))
    return trainer(job.task.name, job.architecture, rows, batch, job.steps, platform), batch * in_a_row


def _rows(task: Task, samples: Arrays) -> SampleReader:
    """Return the rows that this project trains on: packs, or full sequences."""
    if task == TASKS[WIKIPEDIA]:
        return packed_samples(task.length, LENGTHS, VOCABULARY)[1]
    if task.name == PRETRAINING:
        return ArrayReader(pretraining_spec(length=task.length), samples)
    from data_utils.classification.features import classification_features
    from data_utils.records.packs import make_rows
    from data_utils.squad.windows import squad_features

    features = squad_features if task.name == SQUAD else partial(classification_features, classes=2)
    padded, lengths = ArrayReader(features(task.length, VOCABULARY), samples), samples["input_mask"].sum(axis=1)
    return make_rows(padded, lengths, MOST_IN_PACK, SEED, cls_positions=task.name == CLASSIFICATION)


def _tensorflow(job: Job, samples: Arrays) -> Prepared:
    from benchmarks.peers_tensorflow import trainer

    return trainer(job.architecture, lambda: iterate_batches(samples, job.batch, select_rows)), job.batch


def _pytorch(job: Job, samples: Arrays, **way: bool) -> Prepared:
    from benchmarks.peers_pytorch import trainer

    batches = iterate_batches(samples, job.batch, select_rows if job.task.name == PRETRAINING else unpadded)
    device = "cpu" if job.device == CPU else "cuda"
    return trainer(job.task.name, job.architecture, batches, **way, device=device), job.batch


class Competitor(NamedTuple):
    """A way to train BERT.

    Attributes:
        title: in tables.
        prepare: makes a trainer of a job and its samples.
        framework: that Transformers loads; the other one would count as time and memory.
        tasks: keys of ``TASKS``.
    """

    title: str
    prepare: Callable[[Job, Arrays], Prepared]
    framework: str = "TF"
    tasks: tuple[str, ...] = tuple(TASKS)


OURS, OURS_FLOAT32, TENSORFLOW = "ours", "ours-float32", "hf-tensorflow-xla"
BEST = "PyTorch's"  # variants, of which the fastest in a round counts
PYTORCH: dict[str, tuple[str, dict[str, Any]]] = {  # title and options of ``peers_pytorch.trainer``
    "pytorch": ("float32", {}),
    "pytorch-compiled": ("float32, `torch.compile`", {"compiled": True}),
    "pytorch-bfloat16": ("bfloat16 autocast", {"bfloat16": True}),
    "pytorch-bfloat16-compiled": ("bfloat16 autocast, `torch.compile`", {"bfloat16": True, "compiled": True}),
}
COMPETITORS = {
    OURS: Competitor("**this project**, precision auto", partial(_ours, AUTO)),
    OURS_FLOAT32: Competitor("this project, float32", partial(_ours, FLOAT32)),
    TENSORFLOW: Competitor("HF TensorFlow, `jit_compile`", _tensorflow, tasks=(PRETRAINING,)),
    **{
        name: Competitor(f"PyTorch, {title}", partial(_pytorch, **way), "TORCH")
        for name, (title, way) in PYTORCH.items()
    },
}


def measure(
    competitor: str, task: str, size: str, warm_up: int, steps: int, started: float, device: str = CPU
) -> measuring.Values:
    """Warm up, then time the steps, in this process.

    Args:
        competitor, task, size: keys of ``COMPETITORS``, ``TASKS`` and ``SIZES``.
        warm_up: steps before the measured ones, at least 1.
        started: ``time.time()`` just before the process was started.
        device: ``CPU``, where the memory is the process's, or ``GPU``, where it is that of the tensors.
    """
    samples, chosen = make_samples(TASKS[task]), COMPETITORS[competitor]
    train, samples_in_a_step = chosen.prepare(Job(TASKS[task], make_architecture(size), steps, device), samples)
    train(1)
    first = time.time() - started
    if warm_up > 1:
        train(warm_up - 1)
    seconds = train(steps)
    if device == CPU:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    else:
        peer = "benchmarks.peers_pytorch" if chosen.framework == "TORCH" else "benchmarks.ours"
        memory = importlib.import_module(peer).gpu_memory()
    return {SPEED: steps * samples_in_a_step / seconds, FIRST_STEP: first, MEMORY: memory}


def over_best(measured: Measured, case: str, others: Sequence[str]) -> list[float]:
    """Return our speed over that of the fastest of others, in each round."""
    of_ours = measured.values((OURS, case), SPEED)
    speeds = [values for values in (measured.values((name, case), SPEED) for name in others) if values]
    return [own / max(theirs) for own, *theirs in zip(of_ours, *speeds)] if speeds else []


def report(measured: Measured, options: argparse.Namespace) -> list[str]:
    """Return the tables of all measurements: a row for each competitor, a column for each task and size."""
    cases = [f"{task}, {size}" for task in options.tasks for size in options.sizes]
    titles = {name: COMPETITORS[name].title for name in options.competitors}

    def table(corner: str, rows: Mapping[str, str], values: Callable[[str, str], Sequence[float]], form: str) -> str:
        return measuring.table(corner, rows, [Column(case, partial(values, case), form) for case in cases])

    def figures(value: str) -> Callable[[str, str], list[float]]:
        return lambda case, name: measured.values((name, case), value)

    def ratios(case: str, name: str) -> list[float]:
        return over_best(measured, case, list(PYTORCH) if name == BEST else [name])

    tasks = [TASKS[task] for task in options.tasks]
    batches = {task: task.batch if options.device == CPU else task.gpu_batch for task in tasks}
    about = "; ".join(
        f"{task.title}, at most {task.length} tokens, {batches[task]} samples an update" for task in tasks
    )
    parts = [
        f"BERT with dropout and AdamW, vocabulary {VOCABULARY:,}: {about}. Each figure is the median (min–max) of"
        f" {options.rounds} processes, run in alternation; ratios are taken within a round. All compute the masked-LM"
        " head on the masked positions only; PyTorch uses its fused AdamW. This project packs shorter sequences, and"
        " Hugging Face pads them: in fine-tuning each batch to its longest sample.",
        table("samples/s", titles, figures(SPEED), "{:.2f}"),
    ]
    if OURS in titles:
        others = {name: title for name, title in titles.items() if name != OURS}
        rows = {**others, BEST: f"the best of {BEST}"}
        parts.append(table("this project, precision auto, is faster than", rows, ratios, "{:.2f} ×"))
    owner = "process" if options.device == CPU else "tensors on the GPU"
    parts.append(table(f"peak memory of the {owner}, MiB", titles, figures(MEMORY), "{:,.0f}"))
    return [*parts, table("start of the process to first step done, s", titles, figures(FIRST_STEP), "{:.1f}")]


ARGUMENTS: dict[str, dict[str, Any]] = {
    "--tasks": {"nargs": "+", "choices": TASKS, "default": [PRETRAINING], "help": "to train on"},
    "--sizes": {"nargs": "+", "choices": SIZES, "default": ["mini", "small", "base"], "help": "size of the model"},
    "--competitors": {"nargs": "+", "choices": COMPETITORS, "default": list(COMPETITORS), "help": "to be measured"},
    "--device": {"choices": measuring.DEVICES, "default": CPU, "help": "to train on"},
    "--steps": {"type": positive, "metavar": "N", "help": "measured steps of a process; None: depends on the size"},
    "--warm-up": {"type": positive, "default": 3, "metavar": "N", "help": "steps before the measured ones"},
}


@measuring.benchmark(ARGUMENTS, rounds=3)
def main(options: argparse.Namespace) -> list[str]:
    with_pytorch = any(COMPETITORS[name].framework == "TORCH" for name in options.competitors)
    measuring.require(["torch"] if with_pytorch else [], otherwise="leave PyTorch out with --competitors")
    measuring.require([], [real_data_root() / file for task in options.tasks for file in TASKS[task].files])

    def process(competitor: str, task: str, size: str) -> measuring.Values:
        job = {"competitor": competitor, "task": task, "size": size, "warm_up": options.warm_up}
        job["device"] = options.device
        steps = options.steps or SIZES[size].steps
        environment = measuring.only(COMPETITORS[competitor].framework, options.device)
        fix = f"leave {competitor} out with --competitors"
        return measuring.in_process(measure, environment, fix, **job, steps=steps, started=time.time())

    variants = {
        (name, f"{task}, {size}"): partial(process, name, task, size)
        for task in options.tasks
        for size in options.sizes
        for name in options.competitors
        if task in COMPETITORS[name].tasks
    }
    parts = report(measuring.alternate(variants, options.rounds), options)
    if OURS in options.competitors:
        described = measuring.in_process("benchmarks.ours:describe", precision=AUTO, device=options.device)
        parts.insert(1, f"this project, precision auto: {described}")
    return parts


if __name__ == "__main__":
    sys.exit(main())
