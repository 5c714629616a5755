"""This project's model, built and compiled as the trainer does it, and the timing of its training."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.measuring import CPU
from benchmarks.settings import LEARNING_RATE, SEED, WEIGHT_DECAY, Trainer
from data_utils.records.pipeline import SampleReader, training_dataset
from execution.interface import ExecutionOptions, OptimizerSettings, Platform, Progress, Update
from execution.select import select_platform
from keras_extensions.backend import keras, tf
from keras_extensions.schedules import WarmUp
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


def platform_of(device: str = CPU, **options: Any) -> Platform:
    """Return a device of this machine as a platform; ``options`` are those of :class:`ExecutionOptions`."""
    return select_platform(ExecutionOptions(device=device, seed=SEED, **options))


def describe(precision: str, device: str = CPU) -> str:
    """Return the platform's description for a precision, which is in the first line of a run's log."""
    return platform_of(device, precision=precision).describe()


def gpu_memory() -> float:
    """Return the most GPU memory that tensors have had in this process, MiB."""
    return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**20


def number_format(precision: str) -> str:
    return platform_of(precision=precision).precision


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

    def run(self, updates: int, progress: Progress, shuffle: bool = True) -> None:
        """Train on the first samples of the reader's order."""
        data = training_dataset(
            self.reader,
            micro_batch_size=self.rows,
            micro_batches_per_update=self.micro_batches,
            seed=SEED,
            num_updates=updates,
            shuffle=shuffle,
        )
        self.platform.train(self.model, data, updates, progress)


def training(
    task: str,
    architecture: Architecture,
    reader: SampleReader,
    rows: int,
    *,
    platform: Platform | None = None,
    optimizer: keras.optimizers.Optimizer | None = None,
    update: Update | None = None,
    source: Any = None,
) -> Training:
    """Build and compile a model for a reader's rows; see :func:`build`.

    Args:
        platform: default: this machine's CPU.
        optimizer: default: AdamW with the settings of the speed benchmarks.
        update: default: one micro batch.
    """
    platform = platform or platform_of()
    model, blocks = build(task, architecture, reader.spec.shapes, platform, source=source)
    settings = OptimizerSettings("AdamW", WarmUp(LEARNING_RATE, 10_000, 0.1), WEIGHT_DECAY)
    optimizer = optimizer or platform.optimizer(settings)
    update = update or Update(micro_batches=1)
    platform.compile(model, optimizer, OBJECTIVES[task](platform), update, 1)
    return Training(platform, model, blocks, optimizer, reader, rows, update.micro_batches)


def trainer(
    task: str, architecture: Architecture, reader: SampleReader, rows: int, steps: int, platform: Platform
) -> Trainer:
    """Return a function that trains a number of steps and returns their seconds.

    Args:
        steps: largest number of steps in a call.
    """
    made = training(task, architecture, reader, rows, platform=platform)

    def train(count: int) -> float:
        untimed = 1 if platform.on_gpu else 0  # an update takes no longer there than waiting for the first data
        clock = Clock(count, steps, untimed=untimed)
        made.run(count + untimed, clock)
        return clock.seconds

    return train


def losses(made: Training, steps: int) -> list[float]:
    """Train on the samples in their order, and return masked-LM plus next-sentence loss of each step."""
    clock = Clock(steps)
    made.run(steps, clock, shuffle=False)
    return [means["mlm_loss"] + means["nsp_loss"] for means in clock.means]


class Clock(Progress):
    """Makes a number of updates, and records seconds and processor seconds of all cores, and the means, of each call.

    Args:
        updates: number of updates to make.
        per_call: number of updates of a call.
        on_end: called after each call with the number of updates done.
        untimed: updates of a call before these, which waits for the first data.
    """

    def __init__(
        self, updates: int, per_call: int = 1, on_end: Callable[[int], None] | None = None, untimed: int = 0
    ) -> None:
        self._updates, self._per_call, self._on_end = updates, per_call, on_end
        self._done = -untimed
        self.begins: list[tuple[float, float]] = []
        self.ends: list[tuple[float, float]] = []
        self.means: list[dict[str, float]] = []

    def next_call(self) -> int:
        self.begins.append((time.perf_counter(), time.process_time()))
        return -self._done if self._done < 0 else min(self._per_call, self._updates - self._done)

    def after_call(self, updates: int, means: Callable[[], dict[str, float]]) -> bool:
        if self._done < 0:
            self._done, self.begins = 0, []
            return True
        self.means.append(means())
        self.ends.append((time.perf_counter(), time.process_time()))
        self._done += updates
        if self._on_end is not None:
            self._on_end(self._done)
        return self._done < self._updates

    @property
    def seconds(self) -> float:
        return self.ends[-1][0] - self.begins[0][0]

    def calls(self) -> list[tuple[float, float]]:
        """Return seconds and processor seconds of each call except the first, which compiles."""
        pairs = list(zip(self.begins, self.ends))[1:]
        return [(end[0] - begin[0], end[1] - begin[1]) for begin, end in pairs]
