"""How fast samples come, beside how fast BERT-base takes them: ``python -m benchmarks.input_pipeline``.

Records of sequence 128 are read, checked and shuffled as in training, with the config's default threads, in a process
that does nothing else; BERT-base trains on this machine in another. The processes take turns.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.commands import measurement
from benchmarks.jobs import MASKED_POSITIONS, MICRO_BATCH, OURS, SEQUENCE_LENGTH, SIZES, VOCABULARY, Job
from benchmarks.rounds import run_process
from benchmarks.tables import machine, markdown
from utilities.environment import environment_facts
from utilities.errors import UserError

SIZE = "base"
TARGET = 20.0
RECORDS, FILES = 40_000, 4
MICRO_BATCHES = 32  # of an update
WARM_UP, UPDATES = 10, 150


def write_records(folder: Path) -> None:
    """A data set of random records."""
    from data_utils.records.arrays import GeneratedReader
    from data_utils.records.features import pretraining_features
    from data_utils.records.writer import encode_examples, frame_records, write_record_file

    spec = pretraining_features(SEQUENCE_LENGTH, MASKED_POSITIONS, VOCABULARY)
    reader = GeneratedReader(spec, 0, RECORDS)
    for number, rows in enumerate(np.array_split(np.arange(RECORDS), FILES)):
        messages = encode_examples(reader.read(rows))
        write_record_file(folder / f"random_{number}.tfrecord", frame_records(messages))


def measure() -> dict[str, float]:
    """Samples per second that the pipeline delivers, in this process."""
    from data_utils.records.features import pretraining_features
    from data_utils.records.pipeline import training_dataset
    from data_utils.records.reader import RecordReader
    from utilities.config.sections import Data

    options = Data()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_records(folder)
        reader = RecordReader(folder, pretraining_features(SEQUENCE_LENGTH, MASKED_POSITIONS, VOCABULARY))
        dataset = training_dataset(
            reader,
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
        begun, used = time.perf_counter(), time.process_time()
        for _ in range(UPDATES):
            next(elements)
        seconds, used = time.perf_counter() - begun, time.process_time() - used
    samples = UPDATES * MICRO_BATCHES * MICRO_BATCH
    return {"samples_per_second": samples / seconds, "samples_per_processor_second": samples / used}


def in_process() -> dict[str, float]:
    """The same in a process of its own."""
    found: dict[str, float] = measurement("-m", "benchmarks.input_pipeline", "--measure")
    return found


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.input_pipeline", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)s")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def report(pipeline: list[dict[str, float]], training: list[float], facts: dict[str, Any]) -> str:
    """The tables."""
    speed = median(values["samples_per_second"] for values in pipeline)
    core = median(values["samples_per_processor_second"] for values in pipeline)
    times = median(values["samples_per_second"] / taken for values, taken in zip(pipeline, training, strict=True))
    rows = [
        ["sequence 128", "samples/s"],
        ["input pipeline alone", f"{speed:,.0f}"],
        ["  a processor second", f"{core:,.0f}"],
        ["BERT-base trains", f"{median(training):,.2f}"],
    ]
    verdict = "reached" if times >= TARGET else "NOT reached"
    goal = [["target", "wanted", "found", ""]]
    goal.append(["samples delivered over samples taken", f"at least {TARGET:.0f} ×", f"{times:,.0f} ×", verdict])
    about = f"Medians of {len(training)} processes, run in alternation; the ratio is taken within a round."
    return "\n\n".join([machine(facts), about, markdown(rows), markdown(goal)])


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print the tables on standard output."""
    options = parse(arguments)
    if options.measure:
        print(json.dumps(measure()), flush=True)
        return 0
    pipeline: list[dict[str, float]] = []
    training: list[float] = []
    try:
        for number in range(options.rounds):
            pipeline.append(in_process())
            job = Job(OURS, SIZE, warm_up=1, steps=SIZES[SIZE].steps)
            training.append(run_process(job)["samples_per_second"])
            speed = pipeline[-1]["samples_per_second"]
            print(f"round {number + 1}: {speed:,.0f} delivered, {training[-1]:.2f} taken", file=sys.stderr, flush=True)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(report(pipeline, training, environment_facts()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
