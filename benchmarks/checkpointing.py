"""What checkpoints cost: training of BERT-mini with one every ten steps and without, in turns.

``python -m benchmarks.checkpointing``. One process, one model: stretches of 20 steps with two checkpoints alternate
with stretches without, so that a machine that drifts drifts for both. The time of a stretch ends when its last
checkpoint is on disk. Checkpoints are whole ones, of weights and optimizer, checksummed and flushed to disk as in
every run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import measuring
from benchmarks.ours import training
from benchmarks.samples import pretraining_spec
from benchmarks.settings import LEARNING_RATE, MICRO_BATCH, SEED, SIZES, architecture_of
from checkpoints.state import TrainingState
from checkpoints.writer import CheckpointWriter, Rotation
from data_utils.records.arrays import GeneratedReader
from execution.interface import Update
from keras_extensions.backend import keras
from model.architecture import PRETRAINING
from optimization.optimizers import AdamW

STEPS, EVERY = 20, 10
WITHOUT, WITH = "without checkpoints", "with checkpoints"
SECONDS, PROCESSOR, PAUSE = "seconds", "processor_seconds", "pause"


class StretchClock(keras.callbacks.Callback):
    """Times a stretch from the end of its first step, and saves in the middle of each ten steps if it has a writer."""

    def __init__(self, writer: CheckpointWriter | None) -> None:
        super().__init__()
        self._pauses: list[float] = []
        self._writer = writer
        self.values: measuring.Values = {}

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 0:
            self._begun, self._worked = time.perf_counter(), time.process_time()
        if self._writer is not None and batch % EVERY == EVERY // 2:
            before = time.perf_counter()
            self._writer.save(batch + 1)
            self._pauses.append(time.perf_counter() - before)

    def on_train_end(self, logs: Any = None) -> None:
        if self._writer is not None:
            self._writer.wait()
        self.values = {
            SECONDS: time.perf_counter() - self._begun,
            PROCESSOR: time.process_time() - self._worked,
        }
        if self._pauses:
            self.values[PAUSE] = sum(self._pauses) / len(self._pauses)


def measure(size: str, global_batch: int, rounds: int, steps: int) -> tuple[measuring.Measured, float]:
    """Return what stretches of both kinds took, and the megabytes of a checkpoint."""
    Path("runs").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="checkpointing-", dir="runs") as folder:  # on the disk of the runs
        reader, update = GeneratedReader(pretraining_spec(), SEED), Update(global_batch // MICRO_BATCH)
        optimizer, architecture = AdamW(LEARNING_RATE), architecture_of(size)
        made = training(PRETRAINING, architecture, reader, MICRO_BATCH, optimizer=optimizer, update=update)
        state = TrainingState(made.blocks, optimizer)
        writer = CheckpointWriter(Path(folder), state, lambda step: {}, "benchmark", rotation=Rotation(2))

        def stretch(to: CheckpointWriter | None, count: int) -> measuring.Values:
            clock = StretchClock(to)
            made.run(count + 1, [clock])
            return clock.values

        stretch(writer, EVERY)  # compiles, and makes the first files
        variants = {WITHOUT: partial(stretch, None, steps), WITH: partial(stretch, writer, steps)}
        measured = measuring.alternate(variants, rounds, mirrored=True)
        newest = sorted(Path(folder).glob("step-*"))[-1]
        return measured, sum(path.stat().st_size for path in newest.iterdir()) / 1e6


@measuring.command_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = measuring.parser_of("checkpointing", __doc__)
    parser.add_argument("--size", choices=SIZES, default="mini", help="of the model (default %(default)s)")
    parser.add_argument("--global-batches", nargs="+", type=int, default=[32], help="samples per step (default 32)")
    parser.add_argument(
        "--steps", type=measuring.at_least_one, default=STEPS, help="of a stretch (default %(default)s)"
    )
    measuring.add_rounds(parser, 5)
    options = parser.parse_args(arguments)
    header = ["samples per step", "samples/s without", "with", "cost", "processor time", "training waits, ms"]
    rows, found = [[*header, "checkpoint, MB"]], {}
    for global_batch in options.global_batches:
        if global_batch % MICRO_BATCH or global_batch < MICRO_BATCH:
            parser.error(f"--global-batches must be multiples of {MICRO_BATCH}")
        measured, megabytes = measure(options.size, global_batch, options.rounds, options.steps)
        samples = options.steps * global_batch
        speeds = [[samples / seconds for seconds in measured.values(kind, SECONDS)] for kind in (WITHOUT, WITH)]
        costs = [[1 - share for share in measured.ratios(WITHOUT, WITH, name)] for name in (SECONDS, PROCESSOR)]
        pauses = [1000 * pause for pause in measured.values(WITH, PAUSE)]
        cells = [
            *(measuring.spread(values, "{:.1f}") for values in speeds),
            *(measuring.spread(cost, "{:.1%}") for cost in costs),
        ]
        rows.append([str(global_batch), *cells, measuring.spread(pauses, "{:.0f}"), f"{megabytes:.0f}"])
        found[global_batch] = measured.as_json()
    about = f"a checkpoint every {EVERY} steps; median (min–max) of {options.rounds} pairs of stretches."
    measuring.print_report(f"BERT-{options.size}, {about}", measuring.markdown(rows))
    measuring.write_json(options.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
