"""Preparing pre-training data, beside the classic script, and over one and two workers.

``python -m benchmarks.preprocessing`` measures, in processes that take turns, round after round:

- sentences to TFRecords in one process: this project, and the classic procedure in plain Python with Hugging Face's
  Python tokenizer (``benchmarks/competitors/classic_records.py``): text per second of processor time;
- the whole command ``python -m data_utils.text``, text to records, with one worker and with two: seconds by the
  clock, so this wants an idle machine; and the memory of its largest process. It runs on little text as well: the
  difference is what more text costs, without what is the same for any amount (loading code, training Punkt, starting
  and ending workers).

``--only scaling`` leaves out the first, which takes most of the time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.commands import command, measurement
from benchmarks.preprocessing_jobs import (
    CLASSIC,
    COMPARED,
    LITTLE_ONE,
    LITTLE_TWO,
    MAKERS,
    ONE,
    OURS,
    SCALING,
    SPEED,
    TWO,
    Job,
    measure,
)
from benchmarks.tables import machine, markdown
from tests.real_data import real_data_root
from utilities.environment import environment_facts
from utilities.errors import UserError

REAL_TEXT, REAL_VOCABULARY = "wikipedia_en", "vocab/vocab-bert-base-uncased.txt"
TITLES = {CLASSIC: "classic script, HF's Python tokenizer", OURS: "this project"}
SPEED_TARGET, SCALING_TARGET, MEMORY_TARGET = 10.0, 1.8, 1000.0  # ×, ×, MB


def in_process(job: Job) -> dict[str, float]:
    """Runs a job in a process of its own.

    Raises:
        UserError: it failed; its last lines are shown before.
    """
    found: dict[str, float] = measurement("-m", "benchmarks.preprocessing", "--job", json.dumps([*map(str, job)]))
    return found


class Material(NamedTuple):
    """What is measured on.

    Attributes:
        sentences, sentence_mb: a folder of sentence files, and megabytes in it.
        text, text_mb: a folder of WikiExtractor's files, and megabytes in it.
        little, little_mb: the same, of some of them.
    """

    sentences: Path
    sentence_mb: float
    text: Path
    text_mb: float
    little: Path
    little_mb: float

    def of(self, name: str) -> Path:
        """What a job reads."""
        if name in COMPARED[SPEED]:
            return self.sentences
        return self.text if name in (ONE, TWO) else self.little


def megabytes(folder: Path, pattern: str) -> float:
    """In files of a folder."""
    return sum(path.stat().st_size for path in folder.glob(pattern)) / 1e6


def prepare_material(options: argparse.Namespace, folder: Path) -> Material:
    """Links as much text as is asked for, and makes sentences of the first part of it, where they are needed."""
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
        command(*arguments, log=folder / "sentences.log")
    sizes = (megabytes(sentences, "sentences_*.txt"), megabytes(text, "wiki_*"), megabytes(few, "wiki_*"))
    return Material(sentences, sizes[0], text, sizes[1], few, sizes[2])


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.preprocessing", description=__doc__)
    root = real_data_root()
    parser.add_argument(
        "--text", type=Path, default=root / REAL_TEXT, help="WikiExtractor's folder; default: the tests'"
    )
    parser.add_argument("--vocab-file", type=Path, default=root / REAL_VOCABULARY, help="default: the tests'")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=tuple(COMPARED),
        default=tuple(COMPARED),
        help="speed beside the classic script, scaling from one worker to two; default: both",
    )
    parser.add_argument(
        "--sentence-megabytes", type=float, default=8, help="for the comparison, and little text (default %(default)s)"
    )
    parser.add_argument("--megabytes", type=float, default=150, help="for the whole command (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def schedule(options: argparse.Namespace, material: Material) -> Iterator[Job]:
    """Every competitor in turn, round after round."""
    for _ in range(options.rounds):
        for what in options.only:
            for name in COMPARED[what]:
                yield Job(name, material.of(name), options.vocab_file)


Measured = dict[str, list[dict[str, float]]]


def ratio(measured: Measured, name: str, other: str, of: str) -> float:
    """How much more of something one needs than the other: within a round, then the median."""
    return median(one[of] / two[of] for one, two in zip(measured[name], measured[other], strict=True))


class Goal(NamedTuple):
    """A row of the last table.

    Attributes:
        target, wanted, found: as they are printed.
        is_reached: whether it was.
    """

    target: str
    wanted: str
    found: str
    is_reached: bool


def middle(measured: Measured, name: str, of: str) -> float:
    """The median."""
    return median(values[of] for values in measured[name])


def speed_report(measured: Measured, material: Material) -> tuple[str, list[Goal]]:
    """The comparison with the classic script."""
    rows = [["sentences to TFRecords, one process", "MB of text a processor second", "against the classic script"]]
    for name in COMPARED[SPEED]:
        speed = material.sentence_mb / middle(measured, name, "processor_seconds")
        times = ratio(measured, CLASSIC, name, "processor_seconds")
        rows.append([TITLES[name], f"{speed:.3f}", f"{times:.1f} ×"])
    speed = ratio(measured, CLASSIC, OURS, "processor_seconds")
    target = "text per second and core over the classic script"
    wanted = f"at least {SPEED_TARGET:.0f} ×"
    return markdown(rows), [Goal(target, wanted, f"{speed:.1f} ×", speed >= SPEED_TARGET)]


class Growth(NamedTuple):
    """Seconds as a line over the amount of text.

    Attributes:
        seconds_a_mb: what more text costs.
        fixed_seconds: what any amount does.
    """

    seconds_a_mb: float
    fixed_seconds: float


def growth(measured: Measured, material: Material, name: str, little: str) -> Growth:
    """From the runs over little and over all text; the medians."""
    few, all_of_it = (middle(measured, which, "seconds") for which in (little, name))
    more = material.text_mb - material.little_mb
    slope = (all_of_it - few) / more if more > 0 else float("nan")
    return Growth(slope, few - slope * material.little_mb)


def scaling_report(measured: Measured, material: Material) -> tuple[str, list[Goal]]:
    """One worker and two."""
    head = ["text to TFRecords, the whole command", "MB of text", "seconds", "MB/s", "processor seconds", "cores used"]
    lines = [[*head, "largest process"]]
    for name in COMPARED[SCALING]:
        size = material.text_mb if name in (ONE, TWO) else material.little_mb
        seconds, used = (middle(measured, name, of) for of in ("seconds", "processor_seconds"))
        memory = max(values["memory_mb"] for values in measured[name])
        cells = [f"{size:.1f}", f"{seconds:.1f}", f"{size / seconds:.2f}", f"{used:.1f}", f"{used / seconds:.2f}"]
        lines.append([name.split(",")[0], *cells, f"{memory:,.0f} MB"])
    one, two = growth(measured, material, ONE, LITTLE_ONE), growth(measured, material, TWO, LITTLE_TWO)
    costs = [["seconds", "for any amount of text", "for 100 MB more"]]
    costs += [
        [name, f"{line.fixed_seconds:.1f}", f"{100 * line.seconds_a_mb:.1f}"] for name, line in ((ONE, one), (TWO, two))
    ]
    costs.append(["ratio", "", f"{one.seconds_a_mb / two.seconds_a_mb:.2f} ×"])
    scaling = ratio(measured, ONE, TWO, "seconds")
    memory = max(values["memory_mb"] for name in COMPARED[SCALING] for values in measured[name])
    wanted = f"at least {SCALING_TARGET} ×"
    goals = [
        Goal(
            f"from one worker to two, {material.text_mb:.0f} MB", wanted, f"{scaling:.2f} ×", scaling >= SCALING_TARGET
        ),
        Goal("memory of a process", f"below {MEMORY_TARGET:,.0f} MB", f"{memory:,.0f} MB", memory < MEMORY_TARGET),
    ]
    return f"{markdown(lines)}\n\n{markdown(costs)}", goals


def report(measured: Measured, material: Material, facts: dict[str, Any], rounds: int) -> str:
    """The tables."""
    parts, goals = [], []
    for what, tell in ((SPEED, speed_report), (SCALING, scaling_report)):
        if measured[COMPARED[what][0]]:
            part, found = tell(measured, material)
            parts.append(part)
            goals += found
    rows = [["target", "wanted", "found", ""]]
    rows += [[*goal[:3], "reached" if goal.is_reached else "NOT reached"] for goal in goals]
    sentences = f"{material.sentence_mb:.1f} MB of sentences, " if material.sentence_mb else ""
    about = (
        f"{sentences}{material.text_mb:.1f} MB of text; sequence 128, 20 predictions,"
        f" 5 passes. Medians of {rounds} processes, run in alternation; ratios are taken within a round."
    )
    return "\n\n".join([machine(facts), about, *parts, markdown(rows)])


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print the tables on standard output."""
    options = parse(arguments)
    if options.job:
        name, folder, vocabulary = json.loads(options.job)
        print(json.dumps(measure(Job(name, Path(folder), Path(vocabulary)))), flush=True)
        return 0
    measured: Measured = {name: [] for name in MAKERS}
    try:
        if not options.vocab_file.is_file():
            raise UserError(f"--vocab-file {options.vocab_file}: no such file")
        with tempfile.TemporaryDirectory() as folder:
            material = prepare_material(options, Path(folder))
            for job in schedule(options, material):
                measured[job.name].append(in_process(job))
                said = ", ".join(f"{key} {value:,.1f}" for key, value in measured[job.name][-1].items())
                print(f"round {len(measured[job.name])}, {job.name}: {said}", file=sys.stderr, flush=True)
                if options.json:
                    options.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(report(measured, material, environment_facts(), options.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
