"""Fine-tuning speed on SQuAD beside Hugging Face's: ``python -m benchmarks.squad_training``.

Every competitor trains the same span model on the same full windows in a process of its own; the processes take turns,
round after round. PyTorch is needed for this only: ``pip install -r requirements-bench.txt``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from benchmarks.commands import measurement
from benchmarks.jobs import LEARNING_RATE, OURS, SIZES, VOCABULARY, WEIGHT_DECAY, Job, Trainer
from benchmarks.tables import machine, markdown, with_pytorch
from utilities.environment import environment_facts
from utilities.errors import UserError

SEQUENCE_LENGTH, MICRO_BATCH, SAMPLES = 384, 8, 64
WARM_UP = 3


def samples() -> dict[str, np.ndarray]:
    """Full windows of random word pieces with random answers, in this project's features."""
    random = np.random.default_rng(1984)
    shape = (SAMPLES, SEQUENCE_LENGTH)
    start = random.integers(0, SEQUENCE_LENGTH, (SAMPLES, 1))
    made = {
        "input_ids": random.integers(0, VOCABULARY, shape),
        "input_mask": np.ones(shape),
        "segment_ids": np.broadcast_to(np.arange(SEQUENCE_LENGTH) >= 16, shape),
        "start_positions": start,
        "end_positions": random.integers(start, SEQUENCE_LENGTH),
    }
    return {name: values.astype("int32") for name, values in made.items()}


def hugging_face_samples(integer: str) -> dict[str, np.ndarray]:
    """The same by Hugging Face's names."""
    data = samples()
    return {
        "input_ids": data["input_ids"].astype(integer),
        "attention_mask": data["input_mask"].astype(integer),
        "token_type_ids": data["segment_ids"].astype(integer),
        "start_positions": data["start_positions"][:, 0].astype(integer),
        "end_positions": data["end_positions"][:, 0].astype(integer),
    }


def ours(job: Job) -> Trainer:
    """Conversion, compile and ``fit`` as the trainer calls them."""
    from benchmarks.competitors.fit_clock import FitClock
    from data_utils.records.arrays import ArrayReader
    from data_utils.records.features import squad_features
    from data_utils.records.pipeline import training_dataset
    from execution.interface import Update
    from execution.options import ExecutionOptions
    from execution.select import select_platform
    from model.architecture import QA_HEAD, SQUAD, expected_blocks
    from model.bert import assemble, token_shapes
    from model.conversion import convert_squad
    from model.huggingface import untrained_squad
    from model.losses import SpanObjective
    from optimization.adamw import AdamW

    platform = select_platform(ExecutionOptions(device="cpu", seed=1984))
    source = untrained_squad(job.architecture, seed=1984)
    blocks, conversion = convert_squad(source, job.architecture, platform, [QA_HEAD])
    stages = [expected_blocks(SQUAD, job.architecture.num_hidden_layers)]
    outputs = ("start_logits", "end_logits")
    model = assemble(blocks, token_shapes(SEQUENCE_LENGTH), outputs, stages, platform)
    conversion.carry_weights(source)
    optimizer = AdamW(LEARNING_RATE, weight_decay_rate=WEIGHT_DECAY)
    platform.compile(model, optimizer, SpanObjective(), Update(micro_batches=1), max(job.steps, 2))
    reader = ArrayReader(squad_features(SEQUENCE_LENGTH, VOCABULARY), samples())
    clock = FitClock()

    def train(steps: int) -> float:
        data = training_dataset(
            reader, micro_batch_size=MICRO_BATCH, micro_batches_per_update=1, seed=1984, num_updates=steps
        )
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[clock])
        return clock.seconds

    return train


def hf_tensorflow(job: Job) -> Trainer:
    """``compile`` without a loss (the model brings its own) and ``fit``, as shipped."""
    from transformers import TFBertForQuestionAnswering

    from benchmarks.competitors import hf_tensorflow as shared
    from benchmarks.competitors.fit_clock import FitClock
    from benchmarks.competitors.hugging_face import bert_config
    from keras_extensions.backend import keras, tf

    keras.utils.set_random_seed(1984)
    model = TFBertForQuestionAnswering(bert_config(job.architecture))
    model.compile(optimizer=shared.optimizer())
    data = tf.data.Dataset.from_tensor_slices(hugging_face_samples("int32"))
    data = data.batch(MICRO_BATCH, drop_remainder=True).repeat().prefetch(tf.data.AUTOTUNE)
    clock = FitClock()

    def train(steps: int) -> float:
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[clock])
        return clock.seconds

    return train


def hf_pytorch(job: Job) -> Trainer:
    """Eager, as shipped: the model's own loss and ``torch.optim.AdamW``."""
    return _pytorch(job)


def hf_pytorch_fused(job: Job) -> Trainer:
    """The same with PyTorch's fused AdamW."""
    return _pytorch(job, fused=True)


def _pytorch(job: Job, **options: Any) -> Trainer:
    import torch
    from transformers import BertForQuestionAnswering

    from benchmarks.competitors import pytorch
    from benchmarks.competitors.hugging_face import bert_config

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(1984)
    model = BertForQuestionAnswering(bert_config(job.architecture)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, **options)
    data = pytorch.tensors(hugging_face_samples("int64"), MICRO_BATCH)
    return pytorch.loop(data, lambda batch: model(**batch).loss, optimizer)


COMPETITORS: dict[str, tuple[Callable[[Job], Trainer], str, str]] = {  # how, title, framework that is not loaded
    OURS: (ours, "this project", "TORCH"),
    "hf-tensorflow": (hf_tensorflow, "HF TensorFlow, `fit` as shipped", "TORCH"),
    "hf-pytorch": (hf_pytorch, "HF PyTorch, eager", "TF"),
    "hf-pytorch-fused": (hf_pytorch_fused, "HF PyTorch, fused AdamW", "TF"),
}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.squad_training", description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["mini", "base"], help="default: mini base")
    parser.add_argument("--competitors", nargs="+", choices=COMPETITORS, default=list(COMPETITORS), help="default: all")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each competitor (default %(default)s)")
    parser.add_argument("--steps", type=int, help="measured steps of a process; default: by size")
    parser.add_argument("--worker", choices=COMPETITORS, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def job_of(competitor: str, size: str, steps: int | None) -> Job:
    """Half the steps of the pre-training benchmark: windows are three times as long as its sequences."""
    return Job(competitor, size, WARM_UP, steps or max(2, SIZES[size].steps // 2))


def measure(job: Job) -> float:
    """Samples per second, in this process."""
    train = COMPETITORS[job.competitor][0](job)
    train(1)
    train(job.warm_up)
    return job.steps * MICRO_BATCH / train(job.steps)


def measured(competitor: str, size: str, steps: int | None) -> float:
    """Samples per second, in a process of its own.

    Raises:
        UserError: the process failed.
    """
    command = ["-m", "benchmarks.squad_training", "--worker", competitor, "--sizes", size]
    command += ["--steps", str(steps)] if steps else []
    environment = {f"USE_{COMPETITORS[competitor][2]}": "0"}  # read by transformers when it is imported
    value: float = measurement(*command, **environment)
    return value


def report(speeds: dict[tuple[str, str], list[float]], options: argparse.Namespace, facts: dict[str, Any]) -> str:
    """Medians, and ratios taken within a round."""
    speed = [["samples/s", *options.sizes]]
    ratio = [["this project is faster than", *options.sizes]]
    for name in options.competitors:
        title = COMPETITORS[name][1]
        speed.append([title, *(f"{median(speeds[name, size]):.2f}" for size in options.sizes)])
        if name != OURS and OURS in options.competitors:
            pairs = [zip(speeds[OURS, size], speeds[name, size]) for size in options.sizes]
            ratio.append([title, *(f"{median(own / theirs for own, theirs in pair):.2f} ×" for pair in pairs)])
    about = (
        f"Fine-tuning a span model on full windows of {SEQUENCE_LENGTH} tokens, micro batch {MICRO_BATCH}, dropout 0.1,"
        f" AdamW, float32; medians of {options.rounds} processes in alternation."
    )
    return "\n\n".join([machine(facts), about, markdown(speed), markdown(ratio)])


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print tables on standard output."""
    options = parse(arguments)
    if options.worker:
        print(json.dumps(measure(job_of(options.worker, options.sizes[0], options.steps))), flush=True)
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
                    value = measured(name, size, options.steps)
                    speeds.setdefault((name, size), []).append(value)
                    took = time.monotonic() - begin
                    print(f"round {number + 1}, {size}, {name}: {value:.2f} samples/s ({took:.0f} s)", file=sys.stderr)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(report(speeds, options, with_pytorch(environment_facts())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
