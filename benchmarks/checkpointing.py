"""Measures the cost of a checkpoint every ten steps: ``python -m benchmarks.checkpointing``.

In one process, periods of 20 steps with two checkpoints alternate with periods without. The time of a period ends when
its last checkpoint is on disk. Checkpoints contain weights and optimizer, and are checksummed and flushed to disk as in
every run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks import measuring
from benchmarks.measuring import Column
from benchmarks.ours import Clock, Training, training
from benchmarks.samples import pretraining_spec
from benchmarks.settings import MICRO_BATCH, SEED, make_architecture
from checkpoints.state import TrainingState
from checkpoints.writer import CheckpointWriter, Rotation
from data_utils.records.arrays import GeneratedReader
from execution.interface import Update
from model.tasks import PRETRAINING

SIZE, MICRO_BATCHES = "mini", 4
STEPS, EVERY = 20, 10  # steps of a period, and from one checkpoint to the next
WITHOUT, WITH = "without checkpoints", "with checkpoints"
SECONDS, PROCESSOR, PAUSE = "seconds", "processor_seconds", "pause"


def timed_period(made: Training, writer: CheckpointWriter | None, count: int) -> measuring.Values:
    """Time a period from the end of its first step, and save in the middle of each ten steps if there is a writer."""
    pauses: list[float] = []

    def save(done: int) -> None:
        if writer is not None and (done - 1) % EVERY == EVERY // 2:
            before = time.perf_counter()
            writer.save(done)
            pauses.append(time.perf_counter() - before)

    clock = Clock(count + 1, on_end=save)
    made.run(count + 1, clock)
    if writer is not None:
        writer.wait()
    begun, worked = clock.ends[0]
    values = {SECONDS: time.perf_counter() - begun, PROCESSOR: time.process_time() - worked}
    return {**values, PAUSE: sum(pauses) / len(pauses)} if pauses else values


@measuring.benchmark({}, rounds=5)
def main(options: argparse.Namespace) -> list[str]:
    Path("runs").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="checkpointing-", dir="runs") as folder:  # on the disk of the runs
        reader, update = GeneratedReader(pretraining_spec(), SEED), Update(MICRO_BATCHES)
        made = training(PRETRAINING, make_architecture(SIZE), reader, MICRO_BATCH, update=update)
        state = TrainingState(made.blocks, made.optimizer)
        writer = CheckpointWriter(Path(folder), state, lambda step: {}, "benchmark", rotation=Rotation(2))

        timed_period(made, writer, EVERY)  # compiles, and makes the first files
        variants = {WITHOUT: partial(timed_period, made, None, STEPS), WITH: partial(timed_period, made, writer, STEPS)}
        measured = measuring.alternate(variants, options.rounds, mirrored=True)
        newest = sorted(Path(folder).glob("step-*"))[-1]
        megabytes = sum(path.stat().st_size for path in newest.iterdir()) / 1e6
    samples = STEPS * MICRO_BATCHES * MICRO_BATCH
    cost, processor = ([1 - r for r in measured.ratios(WITHOUT, WITH, name)] for name in (SECONDS, PROCESSOR))
    columns = [
        Column("samples/s", lambda kind: [samples / seconds for seconds in measured.values(kind, SECONDS)], "{:.1f}"),
        Column("cost", lambda kind: cost if kind == WITH else [], "{:.1%}"),
        Column("of processor time", lambda kind: processor if kind == WITH else [], "{:.1%}"),
        measured.column("training waits, ms", PAUSE, "{:.0f}", 1000),
    ]
    about = (
        f"BERT-{SIZE}, {MICRO_BATCHES * MICRO_BATCH} samples a step, a checkpoint of {megabytes:.0f} MB"
        f" every {EVERY} steps; median (min–max) of {options.rounds} pairs of periods."
    )
    return [about, measuring.table("", {WITHOUT: WITHOUT, WITH: WITH}, columns)]


if __name__ == "__main__":
    sys.exit(main())
