"""Preparation of pre-training data, compared with an imitation of the classic script, and with one and two workers.

``python -m benchmarks.preprocessing`` measures, in processes that take turns, round after round:

- sentences to TFRecords in one process: this project, and our imitation of the classic script, plain Python with
  Hugging Face's slow tokenizer (``benchmarks/classic_records.py``): text per second of processor time;
- the whole command ``python -m data_utils.text``, text to records, with one worker and with two: seconds by the
  clock, so this needs an idle machine; and the memory of its largest process.

``--only scaling`` leaves out the first, which takes most of the time.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import measuring
from benchmarks.measuring import Column, Measured, real_data_root
from benchmarks.samples import WORDS, wikipedia_files
from data_utils.command_line import positive

CLASSIC, OURS = "imitation of the classic script, slow tokenizer", "this project"
WORKERS = {"one worker": 1, "two workers": 2}
SPEED, SCALING = "speed", "scaling"
COMPARED = {SPEED: (CLASSIC, OURS), SCALING: tuple(WORKERS)}
SECONDS, PROCESSOR, MEMORY = "seconds", "processor_seconds", "memory_mb"
SPEED_MEGABYTES = 8  # of text whose sentences become records
PR_SET_CHILD_SUBREAPER = 36  # of Linux's prctl


def measure(name: str, sentences: str, megabytes: int) -> measuring.Values:
    """Run one way to prepare data.

    Args:
        name: one of ``COMPARED``.
        sentences: folder of sentences.
        megabytes: of text, for the whole command.

    Returns:
        seconds by the clock; processor seconds of this process and all that it started; memory of the largest of them.
    """
    source, words = Path(sentences), (real_data_root() / WORDS).resolve()
    if name == CLASSIC:
        from benchmarks.classic_records import prepare  # before the clock runs, with all that it imports
    elif name == OURS:
        from data_utils.text.corpus import read_corpus
        from data_utils.text.examples import write_examples
        from data_utils.text.instances import Settings
        from data_utils.tokenizer import read_vocabulary
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        begun, used = time.perf_counter(), _processor_seconds()
        if name == CLASSIC:
            prepare(sorted(source.glob("sentences_*.txt")), words, folder / "all.tfrecord")
        elif name == OURS:
            write_examples(read_corpus(source), read_vocabulary(words), folder, Settings())
        else:
            line = ["-m", "data_utils.text", "--wikiextractor", *wikipedia_files(megabytes), "--output", folder / "out"]
            line += ["--vocab-file", words, "--workers", WORKERS[name]]
            adopt_orphans()
            # A worker has one core, whatever the shell says of the tokenizer's threads.
            measuring.command(*line, TOKENIZERS_PARALLELISM="false")
            wait_for_orphans()
        seconds = time.perf_counter() - begun
        used = _processor_seconds() - used
    who = resource.RUSAGE_CHILDREN if name in WORKERS else resource.RUSAGE_SELF
    return {SECONDS: seconds, PROCESSOR: used, MEMORY: resource.getrusage(who).ru_maxrss * 1024 / 1e6}


def adopt_orphans() -> None:
    """Let processes whose parent ends before them, as workers' may, count as children of this one."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wait_for_orphans() -> None:
    """Wait for all children, so that Linux adds their time and memory to those of this process's children."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def _processor_seconds() -> float:
    """Return the processor time of this process and of its children that ended."""
    both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def size_of(files: Iterable[Path]) -> float:
    return sum(file.stat().st_size for file in files) / 1e6


def speed_report(measured: Measured, size: float) -> str:
    def speeds(name: str) -> list[float]:
        return [size / seconds for seconds in measured.values(name, PROCESSOR)]

    columns = [
        Column("MB of text a processor second", speeds, "{:.3f}"),
        Column("over the imitation", lambda name: measured.ratios(CLASSIC, name, PROCESSOR), "{:.1f} ×"),
    ]
    corner = f"{size:.1f} MB of sentences to TFRecords, one process"
    return measuring.table(corner, {name: name for name in COMPARED[SPEED]}, columns)


def scaling_report(measured: Measured, size: float) -> str:
    one, _ = WORKERS
    columns = [
        measured.column("seconds", SECONDS, "{:.1f}"),
        Column("MB/s", lambda name: [size / seconds for seconds in measured.values(name, SECONDS)]),
        measured.column("processor seconds", PROCESSOR, "{:.1f}"),
        Column("× one worker", lambda name: measured.ratios(one, name, SECONDS)),
        Column("largest process, MB", lambda name: [max(measured.values(name, MEMORY))], "{:,.0f}"),
    ]
    corner = f"{size:.1f} MB of text to TFRecords, the whole command"
    return measuring.table(corner, {name: name for name in WORKERS}, columns)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "--only": {
        "nargs": "+", "choices": tuple(COMPARED), "default": tuple(COMPARED),
        "help": "speed over the imitation of the classic script, scaling from one worker to two",
    },
    "--megabytes": {"type": positive, "default": 150, "help": "for the whole command"},
}  # fmt: skip


@measuring.benchmark(ARGUMENTS, rounds=3)
def main(options: argparse.Namespace) -> list[str]:
    measuring.require([], [real_data_root() / WORDS])
    text = wikipedia_files(options.megabytes)
    with tempfile.TemporaryDirectory() as folder:
        sentences = Path(folder) / "sentences"
        if SPEED in options.only:
            line = ["-m", "data_utils.text.sentences", "--wikiextractor", *wikipedia_files(SPEED_MEGABYTES)]
            measuring.command(*line, "--output", sentences, log=Path(folder) / "sentences.log")
        sizes = {SPEED: size_of(sentences.glob("sentences_*.txt")), SCALING: size_of(text)}
        job: dict[str, Any] = {"sentences": str(sentences), "megabytes": options.megabytes}
        names = [name for what in COMPARED for name in COMPARED[what] if what in options.only]
        variants = {name: partial(measuring.in_process, measure, name=name, **job) for name in names}
        measured = measuring.alternate(variants, options.rounds)
    about = (
        f"Sequence 128, 20 predictions, 5 passes. Median (min–max) of {options.rounds} processes, run in alternation;"
        " ratios are taken within a round. The classic script is our imitation: the published procedure in plain Python"
        " with Hugging Face's slow tokenizer (benchmarks/classic_records.py)."
    )
    reports = {SPEED: speed_report, SCALING: scaling_report}
    return [about, *(reports[what](measured, sizes[what]) for what in COMPARED if what in options.only)]


if __name__ == "__main__":
    sys.exit(main())
