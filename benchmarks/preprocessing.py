"""Preparing pre-training data, beside the classic script, and over one and two workers.

``python -m benchmarks.preprocessing`` measures, in processes that take turns, round after round:

- sentences to TFRecords in one process: this project, and the classic procedure in plain Python with Hugging Face's
  Python tokenizer (``benchmarks/classic_records.py``): text per second of processor time;
- the whole command ``python -m data_utils.text``, text to records, with one worker and with two: seconds by the
  clock, so this wants an idle machine; and the memory of its largest process. It runs on little text as well: the
  difference is what more text costs, without what is the same for any amount (loading code, training Punkt, starting
  and ending workers).

``--only scaling`` leaves out the first, which takes most of the time.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import measuring
from utilities.errors import UserError

CLASSIC, OURS = "classic script, HF's Python tokenizer", "this project"
ONE, TWO = "one worker", "two workers"
LITTLE_ONE, LITTLE_TWO = "one worker, little text", "two workers, little text"
WORKERS = {LITTLE_ONE: 1, LITTLE_TWO: 2, ONE: 1, TWO: 2}
SPEED, SCALING = "speed", "scaling"
COMPARED = {SPEED: (CLASSIC, OURS), SCALING: tuple(WORKERS)}
SECONDS, PROCESSOR, MEMORY = "seconds", "processor_seconds", "memory_mb"
SPEED_TARGET, SCALING_TARGET, MEMORY_TARGET = 10.0, 1.8, 1000.0  # ×, ×, MB
SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


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
    else:
        _adopt_orphans()
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
            # A worker has one core, whatever the shell says of the tokenizer's threads.
            measuring.command(*line, TOKENIZERS_PARALLELISM="false")
        seconds = time.perf_counter() - begun
        if name in WORKERS:
            _wait_for_children()
        used = _processor_seconds() - used
    who = resource.RUSAGE_CHILDREN if name in WORKERS else resource.RUSAGE_SELF
    return {SECONDS: seconds, PROCESSOR: used, MEMORY: resource.getrusage(who).ru_maxrss * 1024 / 1e6}


def _adopt_orphans() -> None:
    """Make orphans children of this process, which then knows their time and memory: workers outlive the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _wait_for_children() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _processor_seconds() -> float:
    """Return the processor time of this process and of its children that ended."""
    both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


# --- What is measured on ---


class Material(NamedTuple):
    """Folders, and the megabytes in each: sentence files, all text, and some of the text."""

    sentences: Path
    sentence_mb: float
    text: Path
    text_mb: float
    little: Path
    little_mb: float

    def of(self, name: str) -> Path:
        if name in COMPARED[SPEED]:
            return self.sentences
        return self.text if name in (ONE, TWO) else self.little


def prepare_material(options: argparse.Namespace, folder: Path) -> Material:
    """Link as much text as is asked for, and make sentences of the first part of it where they are needed."""
    files = sorted(path for path in options.text.rglob("wiki_*") if path.is_file())
    if not files:
        raise UserError(f"--text {options.text}: no files wiki_*; name a folder that WikiExtractor wrote")
    for name, limit in (("few", options.sentence_megabytes), ("all", options.megabytes)):
        (folder / name).mkdir()
        size = 0.0
        for number, path in enumerate(files):
            if size < limit * 1e6:
                (folder / name / f"wiki_{number:05d}").symlink_to(path.resolve())
                size += path.stat().st_size
    few, sentences, text = folder / "few", folder / "sentences", folder / "all"
    if SPEED in options.only:
        arguments = ["-m", "data_utils.text.sentences", "--wikiextractor", few, "--output", sentences]
        measuring.command(*arguments, log=folder / "sentences.log")
    patterns = {sentences: "sentences_*.txt", text: "wiki_*", few: "wiki_*"}
    sizes = [sum(path.stat().st_size for path in place.glob(pattern)) / 1e6 for place, pattern in patterns.items()]
    return Material(sentences, sizes[0], text, sizes[1], few, sizes[2])


# --- The report ---


def speed_report(measured: measuring.Measured, material: Material) -> tuple[str, list[measuring.Goal]]:
    """Return the comparison with the classic script."""
    rows = [["sentences to TFRecords, one process", "MB of text a processor second", "against the classic script"]]
    for name in COMPARED[SPEED]:
        speeds = [material.sentence_mb / seconds for seconds in measured.values(name, PROCESSOR)]
        times = measured.ratios(CLASSIC, name, PROCESSOR)
        rows.append([name, measuring.spread(speeds, "{:.3f}"), measuring.spread(times, "{:.1f} ×")])
    speed = measuring.median_of(measured.ratios(CLASSIC, OURS, PROCESSOR))
    goal = measuring.Goal("text per second and core over the classic script", SPEED_TARGET, speed, form="{:.1f} ×")
    return measuring.markdown(rows), [goal]


def growth(measured: measuring.Measured, material: Material, name: str, little: str) -> tuple[float, float]:
    """Return seconds for any amount of text, and for a megabyte more, from the medians over little and over all."""
    few, all_of_it = (measured.median(which, SECONDS) or 0.0 for which in (little, name))
    more = material.text_mb - material.little_mb
    slope = (all_of_it - few) / more if more > 0 else float("nan")
    return few - slope * material.little_mb, slope


def scaling_report(measured: measuring.Measured, material: Material) -> tuple[str, list[measuring.Goal]]:
    """Return what one worker and two take."""
    head = ["text to TFRecords, the whole command", "MB of text", "seconds", "MB/s", "processor seconds", "cores used"]
    lines = [[*head, "largest process"]]
    for name in COMPARED[SCALING]:
        size = material.text_mb if name in (ONE, TWO) else material.little_mb
        seconds, used = (measured.values(name, of) for of in (SECONDS, PROCESSOR))
        busy = [work / time for work, time in zip(used, seconds)]
        cells = [
            f"{size:.1f}",
            measuring.spread(seconds, "{:.1f}"),
            measuring.spread([size / taken for taken in seconds]),
        ]
        cells += [
            measuring.spread(used, "{:.1f}"),
            measuring.spread(busy),
            f"{max(measured.values(name, MEMORY)):,.0f} MB",
        ]
        lines.append([name.split(",")[0], *cells])
    one, two = growth(measured, material, ONE, LITTLE_ONE), growth(measured, material, TWO, LITTLE_TWO)
    costs = [["seconds", "for any amount of text", "for 100 MB more"]]
    costs += [[name, f"{fixed:.1f}", f"{100 * slope:.1f}"] for name, (fixed, slope) in ((ONE, one), (TWO, two))]
    costs.append(["ratio", "", f"{one[1] / two[1]:.2f} ×"])
    scaling = measuring.median_of(measured.ratios(ONE, TWO, SECONDS))
    memory = max(value for name in COMPARED[SCALING] for value in measured.values(name, MEMORY))
    goals = [
        measuring.Goal(f"from one worker to two, {material.text_mb:.0f} MB", SCALING_TARGET, scaling),
        measuring.Goal("memory of a process", MEMORY_TARGET, memory, at_least=False, form="{:,.0f} MB"),
    ]
    return f"{measuring.markdown(lines)}\n\n{measuring.markdown(costs)}", goals


REPORTS = {SPEED: speed_report, SCALING: scaling_report}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = measuring.parser_of("preprocessing", __doc__)
    root, both = measuring.real_data_root(), tuple(COMPARED)
    text = root / "wikipedia_en"
    parser.add_argument("--text", type=Path, default=text, help="WikiExtractor's folder; default: real data's")
    words = root / "vocab" / "vocab-bert-base-uncased.txt"
    parser.add_argument("--vocab-file", type=Path, default=words, help="default: real data's")
    what = "speed beside the classic script, scaling from one worker to two; default: both"
    parser.add_argument("--only", nargs="+", choices=both, default=both, help=what)
    what = "for the comparison, and little text (default %(default)s)"
    parser.add_argument("--sentence-megabytes", type=float, default=8, help=what)
    parser.add_argument("--megabytes", type=float, default=150, help="for the whole command (default %(default)s)")
    measuring.add_rounds(parser, 3)
    return parser.parse_args(arguments)


@measuring.command_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the tables on standard output."""
    options = parse(arguments)
    measuring.require([], [options.text, options.vocab_file], "name others with --text and --vocab-file")
    names = [name for what in COMPARED for name in COMPARED[what] if what in options.only]
    with tempfile.TemporaryDirectory() as folder:
        material = prepare_material(options, Path(folder))
        job = {"vocabulary": str(options.vocab_file.resolve())}
        variants = {n: partial(measuring.in_process, measure, name=n, text=str(material.of(n)), **job) for n in names}
        measured = measuring.alternate(
            variants, options.rounds, lambda so_far: measuring.write_json(options.json, so_far.as_json())
        )
    sentences = f"{material.sentence_mb:.1f} MB of sentences, " if material.sentence_mb else ""
    about = (
        f"{sentences}{material.text_mb:.1f} MB of text; sequence 128, 20 predictions, 5 passes. Median (min–max) of"
        f" {options.rounds} processes, run in alternation; ratios are taken within a round."
    )
    found = [REPORTS[what](measured, material) for what in COMPARED if what in options.only]
    measuring.print_report(
        about, *(part for part, _ in found), measuring.goal_table([goal for _, goals in found for goal in goals])
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
