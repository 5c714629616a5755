"""Speed of the input pipeline, compared with that of BERT-base: ``python -m benchmarks.input_pipeline``.

Records of sequence 128 are read, checked and shuffled as in training, with the config's default threads, in a process
that does nothing else; BERT-base trains on this machine in another. The processes take turns.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measuring, speed
from benchmarks.measuring import Column
from benchmarks.settings import MICRO_BATCH, SIZES
from benchmarks.speed import SPEED
from model.tasks import PRETRAINING

PIPELINE, TRAINING = "input pipeline", "BERT-base"
TITLES = {PIPELINE: "input pipeline alone", TRAINING: "BERT-base trains"}
RECORDS, FILES = 40_000, 4
MICRO_BATCHES = 32  # of an update
WARM_UP, UPDATES = 10, 150  # to read


def measure() -> measuring.Values:
    """Return the samples that the pipeline delivers per second in this process."""
    from benchmarks.samples import pretraining_spec
    from data_utils.records.arrays import GeneratedReader
    from data_utils.records.pipeline import training_dataset
    from data_utils.records.reader import RecordReader
    from data_utils.records.writer import encode_examples, write_record_file
    from settings.data_sections import Data

    generated, options = GeneratedReader(pretraining_spec(), 0, RECORDS), Data()
    with tempfile.TemporaryDirectory() as name:
        for number, rows in enumerate(np.array_split(np.arange(RECORDS), FILES)):
            messages = encode_examples(generated.read(rows))
            write_record_file(Path(name) / f"random_{number}.tfrecord", messages)
        dataset = training_dataset(
            RecordReader(Path(name), pretraining_spec()),
            micro_batch_size=MICRO_BATCH,
            micro_batches_per_update=MICRO_BATCHES,
            seed=0,
            num_updates=WARM_UP + UPDATES,
            reader_threads=options.reader_threads,
            prefetch=options.prefetch,
        )
        elements = iter(dataset)
        for _ in range(WARM_UP):
            next(elements)
        begun = time.perf_counter()
        for _ in range(UPDATES):
            next(elements)
        seconds = time.perf_counter() - begun
    return {SPEED: UPDATES * MICRO_BATCHES * MICRO_BATCH / seconds}


@measuring.benchmark({}, rounds=3)
def main(options: argparse.Namespace) -> list[str]:
    def train() -> measuring.Values:
        job: dict[str, Any] = {"competitor": speed.OURS, "task": PRETRAINING, "size": "base", "warm_up": 1}
        steps, environment = SIZES["base"].steps, measuring.only("TF")
        return measuring.in_process(speed.measure, environment, **job, steps=steps, started=time.time())

    measure_pipeline = partial(measuring.in_process, measure)
    variants: dict[str, Callable[[], measuring.Values]] = {PIPELINE: measure_pipeline, TRAINING: train}
    measured = measuring.alternate(variants, options.rounds)
    columns = [
        measured.column("samples/s", SPEED, "{:,.2f}"),
        Column("× BERT-base", lambda kind: measured.ratios(kind, TRAINING, SPEED), "{:,.0f} ×"),
    ]
    about = f"Median (min–max) of {options.rounds} processes in alternation; the ratio is taken within a round."
    return [about, measuring.table("sequence 128", TITLES, columns)]


if __name__ == "__main__":
    sys.exit(main())
