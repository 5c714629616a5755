"""This project's model, built and compiled as the trainer does it, and the timing of its training."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.settings import LEARNING_RATE, SEED, WEIGHT_DECAY, Trainer
from data_utils.records.pipeline import SampleReader, training_dataset
from execution.interface import ExecutionOptions, OptimizerSettings, Platform, Update
from execution.select import select_platform
from keras_extensions.backend import keras
from keras_extensions.callbacks.reporting import PerExecutionMetrics
from keras_extensions.schedules import UpDown
from model.architecture import Architecture
from model.blocks import Block, assemble
from model.conversion import convert
from model.huggingface import build_hf_model
from model.losses import ClassificationObjective, PretrainingObjective, SpanObjective
from model.tasks import CLASSIFICATION, PRETRAINING, SQUAD, expected_blocks

OBJECTIVES: dict[str, Callable[[Platform], Any]] = {
    PRETRAINING: lambda platform: PretrainingObjective(word_cross_entropy=platform.cross_entropy),
    SQUAD: lambda _: SpanObjective(),
    CLASSIFICATION: lambda _: ClassificationObjective(),
}


def cpu_platform(**options: Any) -> Platform:
    """Return this machine's CPU as a platform; ``options`` are those of :class:`ExecutionOptions`."""
    return select_platform(ExecutionOptions(device="cpu", seed=SEED, **options))


def describe(precision: str) -> str:
    """Return the platform's description for a precision, which is in the first line of a run's log."""
    return cpu_platform(precision=precision).describe()


def number_format(precision: str) -> str:
    """Return the number format that the platform chooses for a precision."""
    return cpu_platform(precision=precision).precision


def build(
    task: str,
    architecture: Architecture,
    shapes: Mapping[str, tuple[int, ...]],
    platform: Platform,
    stages: Sequence[Sequence[str]] | None = None,
    source: Any = None,
) -> tuple[keras.Model, list[Block]]:
    """Convert a Hugging Face model and assemble it.

    Args:
        task: key of ``OBJECTIVES``.
        shapes: shapes of the features of a row.
        stages: stages of a pipeline; None: one stage with all blocks.
        source: the Hugging Face model; None: one with random weights.
    """
    source = source or build_hf_model(task, architecture, SEED)
    with platform.scope():
        blocks, conversion = convert(task, source, architecture, platform)
    stages = stages or [expected_blocks(task, architecture.num_hidden_layers)]
    model = assemble(blocks, shapes, blocks[-1].writes, stages, platform)
    assert conversion is not None, "all layers are replaced"
    conversion.transfer_weights(source)
    return model, blocks


@dataclass
class Training:
    """A compiled model and the samples that it trains on.

    Attributes:
        rows: number of rows in a micro batch.
        micro_batches: number of micro batches in a weight update.
    """

    platform: Platform
    model: keras.Model
    blocks: list[Block]
    optimizer: keras.optimizers.Optimizer
    reader: SampleReader
    rows: int
    micro_batches: int

    def run(self, updates: int, callbacks: Sequence[keras.callbacks.Callback], shuffle: bool = True) -> None:
        """Train on the first samples of the reader's order."""
        data = training_dataset(
            self.reader,
            micro_batch_size=self.rows,
            micro_batches_per_update=self.micro_batches,
            seed=SEED,
            num_updates=updates,
            shuffle=shuffle,
        )
        self.platform.fit(self.model, data, updates, list(callbacks))


def training(
    task: str,
    architecture: Architecture,
    reader: SampleReader,
    rows: int,
    *,
    platform: Platform | None = None,
    optimizer: keras.optimizers.Optimizer | None = None,
    update: Update | None = None,
    updates_per_execution: int = 1,
    source: Any = None,
) -> Training:
    """Build and compile a model for a reader's rows; see :func:`build`.

    Args:
        platform: default: this machine's CPU.
        optimizer: default: AdamW with the settings of the speed benchmarks.
        update: default: one micro batch.
    """
    platform = platform or cpu_platform()
    model, blocks = build(task, architecture, reader.spec.shapes, platform, source=source)
    settings = OptimizerSettings("AdamW", UpDown(LEARNING_RATE, 10_000, 0.1), WEIGHT_DECAY)
    optimizer = optimizer or platform.optimizer(settings)
    update = update or Update(micro_batches=1)
    platform.compile(model, optimizer, OBJECTIVES[task](platform), update, updates_per_execution)
    return Training(platform, model, blocks, optimizer, reader, rows, update.micro_batches)


def trainer(
    task: str, architecture: Architecture, reader: SampleReader, rows: int, steps: int, platform: Platform
) -> Trainer:
    """Return a function that trains a number of steps and returns their seconds.

    Args:
        steps: number of steps in an execution. A model compiled for a single step has no loop, so there are at least
            two; Keras shortens an execution if fewer are left.
    """
    made = training(task, architecture, reader, rows, platform=platform, updates_per_execution=max(steps, 2))

    def train(count: int) -> float:
        clock = Clock()
        made.run(count, [clock])
        return clock.seconds

    return train


def losses(made: Training, steps: int) -> list[float]:
    """Train on the samples in their order, and return masked-LM plus next-sentence loss of each step."""
    losses_of_steps: list[float] = []
    collect = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda _, logs: losses_of_steps.append(float(logs["mlm_loss"] + logs["nsp_loss"]))
    )
    made.run(steps, [PerExecutionMetrics(), collect], shuffle=False)
    return losses_of_steps


class Clock(keras.callbacks.Callback):
    """Records seconds, and processor seconds of all cores, at the start and end of each execution of a ``fit``."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.begins: list[tuple[float, float]] = []
        self.ends: list[tuple[float, float]] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.begins.append((time.perf_counter(), time.process_time()))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ends.append((time.perf_counter(), time.process_time()))

    @property
    def seconds(self) -> float:
        """Return the time from the start of the first execution to the end of the last."""
        return self.ends[-1][0] - self.begins[0][0]

    def executions(self) -> list[tuple[float, float]]:
        """Return seconds and processor seconds of each execution except the first, which compiles."""
        pairs = list(zip(self.begins, self.ends))[1:]
        return [(end[0] - begin[0], end[1] - begin[1]) for begin, end in pairs]
