"""How fast samples come, beside how fast BERT-base takes them: ``python -m benchmarks.input_pipeline``.

Records of sequence 128 are read, checked and shuffled as in training, with the config's default threads, in a process
that does nothing else; BERT-base trains on this machine in another. The processes take turns.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import measuring, pretraining
from benchmarks.pretraining import SPEED
from benchmarks.settings import MICRO_BATCH, SIZES

PIPELINE, TRAINING = "input pipeline", "BERT-base"
BY_CORE = "samples_per_processor_second"
TARGET = 20.0
RECORDS, FILES = 40_000, 4
MICRO_BATCHES = 32  # of an update
WARM_UP = 10


def measure(updates: int) -> measuring.Values:
    """Return the samples per second that the pipeline delivers, in this process."""
    from benchmarks.samples import pretraining_spec
    from data_utils.records.pipeline import training_dataset
    from data_utils.records.reader import RecordReader
    from utilities.config.sections import Data

    options = Data()
    with tempfile.TemporaryDirectory() as name:
        _write_records(Path(name))
        dataset = training_dataset(
            RecordReader(Path(name), pretraining_spec()),
            micro_batch_size=MICRO_BATCH,
            micro_batches_per_update=MICRO_BATCHES,
            seed=0,
            num_updates=WARM_UP + updates,
            reader_threads=options.reader_threads,
            prefetch=options.prefetch,
        )
        elements = iter(dataset)
        for _ in range(WARM_UP):
            next(elements)
        begun, used = time.perf_counter(), time.process_time()
        for _ in range(updates):
            next(elements)
        seconds, used = time.perf_counter() - begun, time.process_time() - used
    samples = updates * MICRO_BATCHES * MICRO_BATCH
    return {SPEED: samples / seconds, BY_CORE: samples / used}


def _write_records(folder: Path) -> None:
    """Write a data set of random records."""
    from benchmarks.samples import pretraining_spec
    from data_utils.records.arrays import GeneratedReader
    from data_utils.records.writer import encode_examples, frame_records, write_record_file

    reader = GeneratedReader(pretraining_spec(), 0, RECORDS)
    for number, rows in enumerate(np.array_split(np.arange(RECORDS), FILES)):
        messages = encode_examples(reader.read(rows))
        write_record_file(folder / f"random_{number}.tfrecord", frame_records(messages))


@measuring.command_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the tables on standard output."""
    parser = measuring.parser_of("input_pipeline", __doc__)
    measuring.add_rounds(parser, 3)
    parser.add_argument(
        "--updates", type=measuring.at_least_one, default=150, help="that are read (default %(default)s)"
    )
    parser.add_argument(
        "--steps", type=measuring.at_least_one, default=SIZES["base"].steps, help="trained (default %(default)s)"
    )
    options = parser.parse_args(arguments)

    def train() -> measuring.Values:
        job = {"competitor": pretraining.OURS, "size": "base", "warm_up": 1, "steps": options.steps}
        return measuring.in_process(pretraining.measure, measuring.only("TF"), **job, started=time.time())

    variants = {PIPELINE: partial(measuring.in_process, measure, updates=options.updates), TRAINING: train}
    measured = measuring.alternate(variants, options.rounds)
    measuring.write_json(options.json, measured.as_json())
    times = measured.ratios(PIPELINE, TRAINING, SPEED)
    rows = [
        ["sequence 128", "samples/s"],
        ["input pipeline alone", measuring.spread(measured.values(PIPELINE, SPEED), "{:,.0f}")],
        ["  a processor second", measuring.spread(measured.values(PIPELINE, BY_CORE), "{:,.0f}")],
        ["BERT-base trains", measuring.spread(measured.values(TRAINING, SPEED), "{:,.2f}")],
        ["delivered over taken", measuring.spread(times, "{:,.0f} ×")],
    ]
    goal = measuring.Goal("samples delivered over samples taken", TARGET, measuring.median_of(times), form="{:,.0f} ×")
    about = f"Median (min–max) of {options.rounds} processes in alternation; the ratio is taken within a round."
    measuring.print_report(about, measuring.markdown(rows), measuring.goal_table([goal]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
