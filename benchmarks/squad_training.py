"""Fine-tuning speed on SQuAD beside Hugging Face's: ``python -m benchmarks.squad_training``.

Every competitor trains the same span model on the same windows in a process of its own; the processes take turns, round
after round. ``--windows real`` are those of real questions: Hugging Face pads them, this project can pack them. PyTorch
is needed for this only: ``pip install -r requirements-bench.txt``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.commands import measurement, only
from benchmarks.jobs import LEARNING_RATE, OURS, SIZES, VOCABULARY, WEIGHT_DECAY, Job, Trainer
from benchmarks.squad_windows import FULL, REAL, SEQUENCE_LENGTH, Arrays, by_their_names, windows_of
from benchmarks.tables import machine, markdown, with_pytorch
from tests.real_data import real_data_root
from utilities.environment import environment_facts
from utilities.errors import UserError

MICRO_BATCH = 8
WARM_UP = 3
PACKED = "ours-packed"
WINDOWS_IN_A_PACK = 6
Made = tuple[Trainer, float]  # how to train a number of steps, and the windows in a step


def ours(job: Job, windows: Arrays) -> Made:
    """One window a row."""
    from data_utils.records.arrays import ArrayReader
    from data_utils.squad.windows import squad_features

    reader = ArrayReader(squad_features(SEQUENCE_LENGTH, VOCABULARY), windows)
    train = _ours(job, reader, MICRO_BATCH)
    return train, MICRO_BATCH


def ours_packed(job: Job, windows: Arrays) -> Made:
    """Several windows a row, and so many rows that a batch holds about as many windows."""

    from data_utils.records.arrays import ArrayReader
    from data_utils.records.packs import rows_of
    from data_utils.squad.windows import squad_features

    lengths = windows["input_mask"].sum(axis=1)
    single = ArrayReader(squad_features(SEQUENCE_LENGTH, VOCABULARY), windows)
    reader = rows_of(single, lengths, WINDOWS_IN_A_PACK, seed=1984)
    in_a_pack = len(lengths) / reader.count
    rows = max(1, round(MICRO_BATCH / in_a_pack))
    return _ours(job, reader, rows), rows * in_a_pack


def _ours(job: Job, reader: Any, rows: int) -> Trainer:
    """Conversion, compile and ``fit`` as the trainer calls them."""
    from benchmarks.competitors.fit_clock import FitClock
    from data_utils.records.pipeline import training_dataset
    from execution.interface import ExecutionOptions, Update
    from execution.select import select_platform
    from model.architecture import QA_HEAD, SQUAD, expected_blocks
    from model.blocks import assemble
    from model.conversion import convert
    from model.huggingface import untrained
    from model.losses import SpanObjective
    from optimization.optimizers import AdamW

    platform = select_platform(ExecutionOptions(device="cpu", seed=1984))
    source = untrained(SQUAD, job.architecture, seed=1984)
    blocks, conversion = convert(SQUAD, source, job.architecture, platform, [QA_HEAD])
    stages = [expected_blocks(SQUAD, job.architecture.num_hidden_layers)]
    model = assemble(blocks, reader.spec.shapes, ("start_logits", "end_logits"), stages, platform)
    conversion.carry_weights(source)
    optimizer = AdamW(LEARNING_RATE, weight_decay_rate=WEIGHT_DECAY)
    platform.compile(model, optimizer, SpanObjective(), Update(micro_batches=1), max(job.steps, 2))
    clock = FitClock()

    def train(steps: int) -> float:
        data = training_dataset(reader, micro_batch_size=rows, micro_batches_per_update=1, seed=1984, num_updates=steps)
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[clock])
        return clock.seconds

    return train


def hf_tensorflow(job: Job, windows: Arrays) -> Made:
    """``compile`` without a loss (the model brings its own) and ``fit``, as shipped."""
    from transformers import TFBertForQuestionAnswering

    from benchmarks.competitors import hf_tensorflow as shared
    from benchmarks.competitors.fit_clock import FitClock
    from benchmarks.competitors.hugging_face import bert_config
    from keras_extensions.backend import keras, tf

    keras.utils.set_random_seed(1984)
    model = TFBertForQuestionAnswering(bert_config(job.architecture))
    model.compile(optimizer=shared.optimizer())
    data = tf.data.Dataset.from_tensor_slices(by_their_names(windows, "int32"))
    data = data.batch(MICRO_BATCH, drop_remainder=True).repeat().prefetch(tf.data.AUTOTUNE)
    clock = FitClock()

    def train(steps: int) -> float:
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[clock])
        return clock.seconds

    return train, MICRO_BATCH


def hf_pytorch(job: Job, windows: Arrays) -> Made:
    """Eager, as shipped: the model's own loss and ``torch.optim.AdamW``."""
    return _pytorch(job, windows)


def hf_pytorch_fused(job: Job, windows: Arrays) -> Made:
    """The same with PyTorch's fused AdamW."""
    return _pytorch(job, windows, fused=True)


def _pytorch(job: Job, windows: Arrays, **options: Any) -> Made:
    import torch
    from transformers import BertForQuestionAnswering

    from benchmarks.competitors import pytorch
    from benchmarks.competitors.hugging_face import bert_config

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(1984)
    model = BertForQuestionAnswering(bert_config(job.architecture)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, **options)
    data = pytorch.tensors(by_their_names(windows, "int64"), MICRO_BATCH)
    return pytorch.loop(data, lambda batch: model(**batch).loss, optimizer), MICRO_BATCH


COMPETITORS: dict[str, tuple[Callable[[Job, Arrays], Made], str, str]] = {  # how, title, framework
    OURS: (ours, "this project", "TF"),
    PACKED: (ours_packed, "this project, windows packed", "TF"),
    "hf-tensorflow": (hf_tensorflow, "HF TensorFlow, `fit` as shipped", "TF"),
    "hf-pytorch": (hf_pytorch, "HF PyTorch, eager", "TORCH"),
    "hf-pytorch-fused": (hf_pytorch_fused, "HF PyTorch, fused AdamW", "TORCH"),
}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.squad_training", description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["mini", "base"], help="default: mini base")
    parser.add_argument("--competitors", nargs="+", choices=COMPETITORS, help="default: all that the windows fit")
    parser.add_argument("--windows", choices=(FULL, REAL), default=FULL, help="default: %(default)s")
    parser.add_argument("--data", type=Path, default=real_data_root(), metavar="DIR", help="has squad/ and vocab/")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each competitor (default %(default)s)")
    parser.add_argument("--steps", type=int, help="measured steps of a process; default: by size")
    parser.add_argument("--worker", choices=COMPETITORS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.competitors is None:  # full windows cannot be packed
        options.competitors = [name for name in COMPETITORS if options.windows == REAL or name != PACKED]
    return options


def job_of(competitor: str, size: str, steps: int | None) -> Job:
    """Half the steps of the pre-training benchmark: windows are three times as long as its sequences."""
    return Job(competitor, size, WARM_UP, steps or max(2, SIZES[size].steps // 2))


def measure(job: Job, windows: Arrays) -> float:
    """Windows per second, in this process."""
    train, windows_in_a_step = COMPETITORS[job.competitor][0](job, windows)
    train(1)
    train(job.warm_up)
    return job.steps * windows_in_a_step / train(job.steps)


def measured(competitor: str, size: str, options: argparse.Namespace) -> float:
    """Windows per second, in a process of its own.

    Raises:
        UserError: the process failed.
    """
    command = ["-m", "benchmarks.squad_training", "--worker", competitor, "--sizes", size]
    command += ["--windows", options.windows, "--data", str(options.data)]
    command += ["--steps", str(options.steps)] if options.steps else []
    value: float = measurement(*command, **only(COMPETITORS[competitor][2]))
    return value


def report(speeds: dict[tuple[str, str], list[float]], options: argparse.Namespace, facts: dict[str, Any]) -> str:
    """Medians, and ratios taken within a round."""
    best = PACKED if PACKED in options.competitors and options.windows == REAL else OURS
    speed = [["windows/s", *options.sizes]]
    ratio = [["this project is faster than", *options.sizes]]
    for name in options.competitors:
        title = COMPETITORS[name][1]
        speed.append([title, *(f"{median(speeds[name, size]):.2f}" for size in options.sizes)])
        if name not in (OURS, PACKED) and best in options.competitors:
            pairs = [zip(speeds[best, size], speeds[name, size]) for size in options.sizes]
            ratio.append([title, *(f"{median(own / theirs for own, theirs in pair):.2f} ×" for pair in pairs)])
    about = (
        f"Fine-tuning a span model on {options.windows} windows of {SEQUENCE_LENGTH} tokens, micro batch {MICRO_BATCH},"
        f" dropout 0.1, AdamW, float32; medians of {options.rounds} processes in alternation."
    )
    return "\n\n".join([machine(facts), about, markdown(speed), markdown(ratio)])


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print tables on standard output."""
    options = parse(arguments)
    if options.worker:
        job = job_of(options.worker, options.sizes[0], options.steps)
        print(json.dumps(measure(job, windows_of(options.windows, options.data))), flush=True)
        return 0
    if importlib.util.find_spec("torch") is None and any("pytorch" in name for name in options.competitors):
        print(
            "error: PyTorch is not installed; run `pip install -r requirements-bench.txt`, or leave it out with"
            " --competitors",
            file=sys.stderr,
        )
        return 2
    speeds: dict[tuple[str, str], list[float]] = {}
    try:
        for number in range(options.rounds):
            for size in options.sizes:
                for name in options.competitors:
                    begin = time.monotonic()
                    value = measured(name, size, options)
                    speeds.setdefault((name, size), []).append(value)
                    took = time.monotonic() - begin
                    print(f"round {number + 1}, {size}, {name}: {value:.2f} windows/s ({took:.0f} s)", file=sys.stderr)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(report(speeds, options, with_pytorch(environment_facts())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
