"""What checkpoints cost: training of BERT-mini with one every ten steps and without, in turns.

``python -m benchmarks.checkpointing``. One process, one model: stretches of 20 steps with two checkpoints alternate
with stretches without, so that a machine that drifts drifts for both. The time of a stretch ends when its last
checkpoint is on disk. Checkpoints are whole ones, of weights and optimizer, checksummed and flushed to disk as in
every run.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.jobs import LEARNING_RATE, MASKED_POSITIONS, MICRO_BATCH, SEQUENCE_LENGTH, SIZES, VOCABULARY, Job
from benchmarks.tables import machine, markdown
from checkpoints.state import TrainingState
from checkpoints.writer import CheckpointWriter, Rotation
from data_utils.records.arrays import GeneratedReader
from data_utils.records.features import pretraining_features
from data_utils.records.pipeline import training_dataset
from execution.interface import ExecutionOptions, Update
from execution.select import select_platform
from keras_extensions.backend import keras
from model.architecture import PRETRAINING, expected_blocks
from model.blocks import assemble
from model.conversion import convert
from model.huggingface import untrained
from model.losses import PretrainingObjective
from optimization.optimizers import AdamW
from utilities.environment import environment_facts

STEPS, EVERY = 20, 10
SEED = 1984
RUN = "benchmark"


class Stretch(NamedTuple):
    """One stretch of training.

    Attributes:
        seconds: from the end of its first step until the last one is done and saved.
        processor: seconds of all cores in that time.
        pauses: seconds for which training waited at each checkpoint.
    """

    seconds: float
    processor: float
    pauses: list[float]


class Clock(keras.callbacks.Callback):
    """Times a stretch, and saves in the middle of each ten steps where there is a writer."""

    def __init__(self, writer: CheckpointWriter | None) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self._writer = writer

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras: a step ended."""
        if batch == 0:
            self.started, self.processor_before = time.perf_counter(), time.process_time()
        if self._writer is not None and batch % EVERY == EVERY // 2:
            before = time.perf_counter()
            self._writer.save(batch + 1)
            self.pauses.append(time.perf_counter() - before)

    def on_train_end(self, logs: Any = None) -> None:
        """Keras: the stretch ended."""
        if self._writer is not None:
            self._writer.wait()
        self.seconds = time.perf_counter() - self.started
        self.processor = time.process_time() - self.processor_before


class Training:
    """A model that trains in stretches.

    Args:
        size: of ``benchmarks.jobs.SIZES``.
        global_batch: samples of an update, in micro batches.
        folder: for checkpoints.
    """

    def __init__(self, size: str, global_batch: int, folder: Path) -> None:
        architecture = Job("ours", size, warm_up=1, steps=STEPS).architecture
        platform = select_platform(ExecutionOptions(device="cpu", seed=SEED))
        source = untrained(PRETRAINING, architecture, SEED)
        blocks, conversion = convert(PRETRAINING, source, architecture, platform)
        stages = [expected_blocks(PRETRAINING, architecture.num_hidden_layers)]
        shapes = pretraining_features(SEQUENCE_LENGTH, MASKED_POSITIONS, architecture.vocab_size).shapes
        self._model = assemble(blocks, shapes, ("masked_lm", "next_sentence"), stages, platform)
        conversion.carry_weights(source)
        optimizer = AdamW(LEARNING_RATE)
        self._micro_batches = global_batch // MICRO_BATCH
        platform.compile(self._model, optimizer, PretrainingObjective(), Update(self._micro_batches), 1)
        self._reader = GeneratedReader(pretraining_features(SEQUENCE_LENGTH, MASKED_POSITIONS, VOCABULARY), SEED)
        state = TrainingState(blocks, optimizer)
        self._writer = CheckpointWriter(folder, state, lambda step: {}, RUN, rotation=Rotation(2))

    def stretch(self, saving: bool, steps: int = STEPS) -> Stretch:
        """Train so many steps after a first one that is not timed."""
        data = training_dataset(
            self._reader,
            micro_batch_size=MICRO_BATCH,
            micro_batches_per_update=self._micro_batches,
            seed=SEED,
            num_updates=steps + 1,
        )
        clock = Clock(self._writer if saving else None)
        self._model.fit(data, steps_per_epoch=steps + 1, verbose=0, callbacks=[clock])
        return Stretch(clock.seconds, clock.processor, clock.pauses)


class Cost(NamedTuple):
    """Medians over the pairs of stretches.

    Attributes:
        without, saving: samples per second.
        share: of the throughput that checkpoints cost; the median of the pairs' shares.
        processor: share of the processor time that they take; it says more where other programs run beside.
        pause: milliseconds for which training waits at a checkpoint.
        megabytes: of a checkpoint.
    """

    without: float
    saving: float
    share: float
    processor: float
    pause: float
    megabytes: float


def measure(size: str, global_batch: int, rounds: int) -> Cost:
    """Alternate stretches with and without checkpoints, each order as often as the other."""
    with checkpoints() as folder:
        training = Training(size, global_batch, folder)
        training.stretch(saving=True, steps=EVERY)  # compiles, and makes the first files
        pairs = []
        for number in range(rounds):
            order = (False, True) if number % 2 == 0 else (True, False)
            pair = {saving: training.stretch(saving) for saving in order}
            pairs.append((pair[False], pair[True]))
        newest = sorted(folder.glob("step-*"))[-1]
        megabytes = sum(path.stat().st_size for path in newest.iterdir()) / 1e6
    samples = STEPS * global_batch
    return Cost(
        without=samples / statistics.median(without.seconds for without, _ in pairs),
        saving=samples / statistics.median(saving.seconds for _, saving in pairs),
        share=statistics.median(1 - without.seconds / saving.seconds for without, saving in pairs),
        processor=statistics.median(1 - without.processor / saving.processor for without, saving in pairs),
        pause=1000 * statistics.median(pause for _, saving in pairs for pause in saving.pauses),
        megabytes=megabytes,
    )


@contextlib.contextmanager
def checkpoints() -> Iterator[Path]:
    """A folder beside the runs, so on the disk that they would be on."""
    Path("runs").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="checkpointing-", dir="runs") as folder:
        yield Path(folder)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpointing", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="mini", help="of the model (default %(default)s)")
    parser.add_argument("--global-batches", nargs="+", type=int, default=[32], help="samples per step (default 32)")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of stretches (default %(default)s)")
    options = parser.parse_args(arguments)
    rows = [
        [
            "samples per step",
            "samples/s without",
            "with",
            "cost",
            "processor time",
            "training waits, ms",
            "checkpoint, MB",
        ]
    ]
    for global_batch in options.global_batches:
        if global_batch % MICRO_BATCH or global_batch < MICRO_BATCH:
            parser.error(f"--global-batches must be multiples of {MICRO_BATCH}")
        cost = measure(options.size, global_batch, options.rounds)
        rows.append(
            [
                str(global_batch),
                f"{cost.without:.1f}",
                f"{cost.saving:.1f}",
                f"{cost.share:.1%}",
                f"{cost.processor:.1%}",
                f"{cost.pause:.0f}",
                f"{cost.megabytes:.0f}",
            ]
        )
    print(machine(environment_facts()))
    print(f"\nBERT-{options.size}, a checkpoint every {EVERY} steps; medians of {options.rounds} pairs of stretches.\n")
    print(markdown(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
