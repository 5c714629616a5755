"""Preparation of pre-training data, compared with an imitation of the classic script, and with one and two workers.

``python -m benchmarks.preprocessing`` measures, in processes that take turns, round after round:

- sentences to TFRecords in one process: this project, and our imitation of the classic script, plain Python with
  Hugging Face's slow tokenizer (``benchmarks/classic_records.py``): text per second of processor time;
- the whole command ``python -m data_utils.text``, text to records, with one worker and with two: seconds by the
  clock, so this needs an idle machine; and the memory of its largest process. It also runs on a small text: the
  difference is the cost of more text, without the constant part (loading code, training Punkt, starting and ending
  workers).

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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import measuring
from benchmarks.measuring import Column, Measured
from benchmarks.samples import WORDS
from utilities.errors import UserError

CLASSIC, OURS = "imitation of the classic script, slow tokenizer", "this project"
ONE, TWO = "one worker", "two workers"
LITTLE_ONE, LITTLE_TWO = "one worker, little text", "two workers, little text"
WORKERS = {LITTLE_ONE: 1, LITTLE_TWO: 2, ONE: 1, TWO: 2}
SPEED, SCALING = "speed", "scaling"
COMPARED = {SPEED: (CLASSIC, OURS), SCALING: tuple(WORKERS)}
SECONDS, PROCESSOR, MEMORY = "seconds", "processor_seconds", "memory_mb"
WIKIPEDIA = "wikipedia_en"  # in the folder of real data, as WikiExtractor writes it
LITTLE_MEGABYTES = 8  # for the comparison, and of little text
PR_SET_CHILD_SUBREAPER = 36  # of Linux's prctl


# --- One measurement, in a process of its own ---


def measure(name: str, text: str, vocabulary: str) -> measuring.Values:
    """Run one way to prepare data.

    Args:
        name: one of ``COMPARED``.
        text: folder of WikiExtractor's files, or of sentences.
        vocabulary: ``vocab.txt``.

    Returns:
        seconds by the clock; processor seconds of this process and all that it started; memory of the largest of them.
    """
    source, words = Path(text), Path(vocabulary)
    if name == CLASSIC:
        from benchmarks.classic_records import prepare  # before the clock runs, with all that it imports
    elif name == OURS:
        from data_utils.text.examples import write_examples
        from data_utils.text.instances import Settings
        from data_utils.text.sentences import read_corpus
        from data_utils.tokenizer import read_vocabulary
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        begun, used = time.perf_counter(), _processor_seconds()
        if name == CLASSIC:
            prepare(sorted(source.glob("sentences_*.txt")), words, folder / "all.tfrecord")
        elif name == OURS:
            write_examples(read_corpus(source), read_vocabulary(words), folder, Settings())
        else:
            line = ["-m", "data_utils.text", "--wikiextractor", source, "--output", folder / "out"]
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


# --- The text ---


class Text(NamedTuple):
    folder: Path
    megabytes: float


Texts = dict[str, Text]  # by a name of COMPARED


def prepare_texts(source: Path, options: argparse.Namespace, folder: Path) -> Texts:
    """Link the requested amount of text, and make sentences of the first part of it if they are needed."""
    files = sorted(path for path in source.rglob("wiki_*") if path.is_file())
    if not files:
        raise UserError(f"{source}: no files wiki_*; set BERT_REAL_DATA to the folder of real data")
    for name, limit in (("few", LITTLE_MEGABYTES), ("all", options.megabytes)):
        (folder / name).mkdir()
        size = 0.0
        for number, path in enumerate(files):
            if size < limit * 1e6:
                (folder / name / f"wiki_{number:05d}").symlink_to(path.resolve())
                size += path.stat().st_size
    few, sentences = folder / "few", folder / "sentences"
    if SPEED in options.only:
        arguments = ["-m", "data_utils.text.sentences", "--wikiextractor", few, "--output", sentences]
        measuring.command(*arguments, log=folder / "sentences.log")
    texts: Texts = {}
    for names, part, pattern in (
        (COMPARED[SPEED], sentences, "sentences_*.txt"),
        ((LITTLE_ONE, LITTLE_TWO), few, "wiki_*"),
        ((ONE, TWO), folder / "all", "wiki_*"),
    ):
        megabytes = sum(file.stat().st_size for file in part.glob(pattern)) / 1e6
        texts.update(dict.fromkeys(names, Text(part, megabytes)))
    return texts


# --- The report ---


def speed_report(measured: Measured, texts: Texts) -> str:
    """Return the comparison with our imitation of the classic script."""

    def speeds(name: str) -> list[float]:
        return [texts[name].megabytes / seconds for seconds in measured.values(name, PROCESSOR)]

    columns = [
        Column("MB of text a processor second", speeds, "{:.3f}"),
        Column("over the imitation", lambda name: measured.ratios(CLASSIC, name, PROCESSOR), "{:.1f} ×"),
    ]
    titles = {name: name for name in COMPARED[SPEED]}
    return measuring.table("sentences to TFRecords, one process", titles, columns)


def growth(measured: Measured, texts: Texts, name: str, little: str) -> tuple[float, float]:
    """Return the constant seconds, and those per megabyte, from the medians on the small text and on all text."""
    few, all_of_it = (measured.median(which, SECONDS) for which in (little, name))
    more = texts[name].megabytes - texts[little].megabytes
    slope = (all_of_it - few) / more if more > 0 else float("nan")
    return few - slope * texts[little].megabytes, slope


def scaling_report(measured: Measured, texts: Texts) -> str:
    """Return the comparison of one worker with two."""
    columns = [
        Column("MB of text", lambda name: [texts[name].megabytes], "{:.1f}"),
        measured.column("seconds", SECONDS, "{:.1f}"),
        Column("MB/s", lambda name: [texts[name].megabytes / s for s in measured.values(name, SECONDS)]),
        measured.column("processor seconds", PROCESSOR, "{:.1f}"),
        Column("× one worker", lambda name: measured.ratios(ONE, name, SECONDS) if name in (ONE, TWO) else []),
        Column("largest process, MB", lambda name: [max(measured.values(name, MEMORY))], "{:,.0f}"),
    ]
    workers = measuring.table("text to TFRecords, the whole command", {n: n for n in COMPARED[SCALING]}, columns)
    one, two = growth(measured, texts, ONE, LITTLE_ONE), growth(measured, texts, TWO, LITTLE_TWO)
    costs = [["seconds", "for any amount of text", "for 100 MB more"]]
    costs += [[name, f"{fixed:.1f}", f"{100 * slope:.1f}"] for name, (fixed, slope) in ((ONE, one), (TWO, two))]
    costs.append(["ratio", "", f"{one[1] / two[1]:.2f} ×"])
    return f"{workers}\n\n{measuring.markdown(costs)}"


REPORTS = {SPEED: speed_report, SCALING: scaling_report}

ARGUMENTS: dict[str, dict[str, Any]] = {
    "--only": {
        "nargs": "+",
        "choices": tuple(COMPARED),
        "default": tuple(COMPARED),
        "help": "speed over the imitation of the classic script, scaling from one worker to two",
    },
    "--megabytes": {"type": float, "default": 150, "help": "for the whole command"},
}


@measuring.benchmark(ARGUMENTS, rounds=3)
def main(options: argparse.Namespace) -> list[str]:
    text, vocabulary = (measuring.real_data_root() / name for name in (WIKIPEDIA, WORDS))
    measuring.require([], [text, vocabulary])
    names = [name for what in COMPARED for name in COMPARED[what] if what in options.only]
    with tempfile.TemporaryDirectory() as folder:
        texts = prepare_texts(text, options, Path(folder))
        job: dict[str, Any] = {"vocabulary": str(vocabulary.resolve())}
        variants = {n: partial(measuring.in_process, measure, name=n, text=str(texts[n].folder), **job) for n in names}
        measured = measuring.alternate(variants, options.rounds)
    sentences = f"{texts[OURS].megabytes:.1f} MB of sentences, " if texts[OURS].megabytes else ""
    about = (
        f"{sentences}{texts[ONE].megabytes:.1f} MB of text; sequence 128, 20 predictions, 5 passes. Median (min–max) of"
        f" {options.rounds} processes, run in alternation; ratios are taken within a round."
    )
    if SPEED in options.only:
        about += (
            " The classic script is our imitation: the published procedure in plain Python with Hugging Face's slow"
            " tokenizer (benchmarks/classic_records.py)."
        )
    return [about, *(REPORTS[what](measured, texts) for what in COMPARED if what in options.only)]


if __name__ == "__main__":
    sys.exit(main())
