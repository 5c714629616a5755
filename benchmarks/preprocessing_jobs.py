"""What ``benchmarks.preprocessing`` measures, each in a process of its own: seconds, processor time, memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.commands import command

CLASSIC, OURS, ONE, TWO = "classic", "ours", "one worker", "two workers"
LITTLE_ONE, LITTLE_TWO = "one worker, little text", "two workers, little text"
WORKERS = {ONE: 1, TWO: 2, LITTLE_ONE: 1, LITTLE_TWO: 2}
SPEED, SCALING = "speed", "scaling"
COMPARED = {SPEED: (CLASSIC, OURS), SCALING: (LITTLE_ONE, LITTLE_TWO, ONE, TWO)}
SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


class Job(NamedTuple):
    """One measurement.

    Attributes:
        name: what is measured.
        input: folder of text, as WikiExtractor writes it, or of sentences.
        vocabulary: ``vocab.txt``.
    """

    name: str
    input: Path
    vocabulary: Path


def classic(job: Job, folder: Path) -> None:
    """Sentences to records, the classic way."""
    from benchmarks.competitors.classic_records import Recipe, prepare

    prepare(sorted(job.input.glob("sentences_*.txt")), job.vocabulary, folder / "all.tfrecord", Recipe())


def ours(job: Job, folder: Path) -> None:
    """Sentences to records, both passes, in this process."""
    from data_utils.text.examples import write_examples
    from data_utils.text.instances import Settings
    from data_utils.text.sentences import read_corpus

    write_examples(read_corpus(job.input), job.vocabulary, folder, Settings())


def whole(job: Job, folder: Path) -> None:
    """All steps, by the command that users run."""
    arguments = ["-m", "data_utils.text", "--wikiextractor", job.input, "--output", folder]
    arguments += ["--vocab-file", job.vocabulary, "--workers", WORKERS[job.name]]
    # A worker is one core's, whatever the shell says of the tokenizer's threads.
    command(*arguments, TOKENIZERS_PARALLELISM="false")


MAKERS: dict[str, Callable[[Job, Path], None]] = {CLASSIC: classic, OURS: ours, **dict.fromkeys(WORKERS, whole)}


def imported(name: str) -> None:
    """Loads what a job needs, before the clock runs."""
    if name == CLASSIC:
        import benchmarks.competitors.classic_records  # noqa: F401 (TensorFlow and Transformers)
    elif name == OURS:
        import data_utils.text.examples  # noqa: F401


def measure(job: Job) -> dict[str, float]:
    """Runs a job in this process.

    Returns:
        ``seconds`` by the clock; ``processor_seconds`` of this process and all that it started; ``memory_mb`` of the
        largest of them.
    """
    imported(job.name)
    if job.name in WORKERS:
        adopt_orphans()
    with tempfile.TemporaryDirectory() as folder:
        begun, used = time.perf_counter(), processor_seconds()
        MAKERS[job.name](job, Path(folder) / "out" if job.name in WORKERS else Path(folder))
        seconds = time.perf_counter() - begun
        if job.name in WORKERS:
            wait_for_children()
        used = processor_seconds() - used
    who = resource.RUSAGE_CHILDREN if job.name in WORKERS else resource.RUSAGE_SELF
    return {
        "seconds": seconds,
        "processor_seconds": used,
        "memory_mb": resource.getrusage(who).ru_maxrss * 1024 / 1e6,
    }


def adopt_orphans() -> None:
    """Makes what outlives its parent a child of this process, which can then tell its time and memory: workers are
    forked from a process that ends just after the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wait_for_children() -> None:
    """Until there are none."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def processor_seconds() -> float:
    """Of this process and of those of its children that ended."""
    both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)
