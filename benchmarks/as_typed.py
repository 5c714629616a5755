"""Fine-tuning as a user types it, here and with Trainer: ``python -m benchmarks.as_typed --model FOLDER``.

FOLDER is a Hugging Face BERT with a fast tokenizer. Here it is ``configs/fine_tuning.json`` with the names of files and
columns, one epoch; there Hugging Face's ``Trainer`` as in Transformers' examples (``benchmarks/trainer_script.py``), at
the same rate, in bfloat16, with batches of 32 padded to their longest text. Whole commands take turns, each
in a process of its own.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import measuring
from benchmarks.measuring import Values
from benchmarks.real_tasks import write_samples
from benchmarks.samples import SQUAD_TRAINING
from data_utils.command_line import positive
from data_utils.squad.examples import read_squad
from model.tasks import SQUAD
from utilities.environment import usable_cores
from utilities.errors import UserError
from utilities.files import PROJECT

OURS, TRAINER = "ours", "trainer"
CONFIG = PROJECT / "configs" / "fine_tuning.json"
SST2, WORDS, TABLE = "sst2", "words", "table"
SAMPLES = {SST2: 6000, WORDS: 3400, TABLE: 4000, SQUAD: 600}
EVALUATED = 400
NAME, OTHER = "B-NAME", "O"  # the tags of words with a capital letter, and of others
WINDOW, STRIDE = 128, 64  # tokens of SQuAD's windows, here and there
COLUMNS = (  # title, value, form
    ("seconds", "seconds", "{:.0f}"),
    ("samples/s", "rate", "{:.0f}"),
    ("peak memory, MiB", "memory", "{:,.0f}"),
)


class Files(NamedTuple):
    """The data of a task: the folder, and the files to train on and to evaluate."""

    folder: Path
    train: str
    validation: str


def write_data(task: str, options: argparse.Namespace, root: Path) -> Files:
    """Write the samples of a task into a folder below ``root``."""
    if task in (SST2, SQUAD):
        for train, most in ((True, SAMPLES[task]), (False, EVALUATED)):
            write_samples(task, train, options.data, root, most)
        if task == SST2:
            return Files(root / "glue" / "SST-2", "train.tsv", "dev.tsv")
        return Files(root / "squad", Path(SQUAD_TRAINING).name, "dev-v1.1.json")
    folder = root / task
    folder.mkdir()
    if task == WORDS:
        sentences = _sentences(options.data / SQUAD_TRAINING, SAMPLES[WORDS] + EVALUATED)
        for name, part in (("train.txt", sentences[EVALUATED:]), ("dev.txt", sentences[:EVALUATED])):
            lines = ["".join(f"{word} {NAME if word[0].isupper() else OTHER}\n" for word in each) for each in part]
            (folder / name).write_text("\n".join(lines), encoding="utf-8")
        return Files(folder, "train.txt", "dev.txt")
    if options.table is None or not options.table.is_file():
        raise UserError("name a table with the columns text and label, such as terms-train.csv of benchmarks.domains")
    with options.table.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    for name, part in (("dev.csv", rows[:EVALUATED]), ("train.csv", rows[EVALUATED:][: SAMPLES[TABLE]])):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *part])
    return Files(folder, "train.csv", "dev.csv")


def _sentences(squad: Path, most: int) -> list[list[str]]:
    """Return the words of sentences of SQuAD's contexts."""
    contexts = (paragraph.context for paragraph in read_squad(squad).paragraphs)
    sentences = [sentence.split() for context in contexts for sentence in context.split(". ") if sentence.strip()]
    return sentences[:most]


def our_command(task: str, files: Files, model: Path, output: Path) -> list[str]:
    """Return the command that a user of this project types."""
    program = {WORDS: "token_classification", SQUAD: "squad"}.get(task, "seq_classification")
    own = {
        SST2: ["--glue-task", "sst2"],
        WORDS: [],
        TABLE: [
            *("--classification-data.train-file", files.train),
            *("--classification-data.validation-file", files.validation),
            *("--classification-data.text", "text", "--classification-data.label", "label"),
        ],
        SQUAD: [
            *("--squad.train-file", files.train, "--squad.dev-file", files.validation),
            *("--max-seq-length", str(WINDOW), "--squad.doc-stride", str(STRIDE)),
        ],
    }[task]
    where = ["--dataset-dir", str(files.folder), "--pretrained-ckpt-path", str(model), "--output-dir", str(output)]
    return [f"run_{program}.py", "--config", str(CONFIG), "--num-epochs", "1", "--name", "run", *where, *own]


def trainer_command(task: str, files: Files, model: Path, output: Path) -> list[str]:
    """Return the command of the script with ``Trainer``."""
    rate = json.loads(CONFIG.read_text(encoding="utf-8"))["optimizer_opts"]["learning_rate"]["max_learning_rate"]
    job: dict[str, Any] = {
        "task": task,
        "model": str(model),
        "train": str(files.folder / files.train),
        "validation": str(files.folder / files.validation),
        "output": str(output),
        "rate": rate,
        "window": WINDOW,
        "stride": STRIDE,
    }
    return ["-m", "benchmarks.trainer_script", json.dumps(job)]


def our_rate(output: Path) -> float:
    """Return the samples a second of the last logging period."""
    lines = (output / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return float(next(row["throughput"] for row in map(json.loads, reversed(lines)) if "throughput" in row))


def trainer_rate(output: Path) -> float:
    """Return the samples a second of the training, without what comes before and after."""
    return float(json.loads((output / "rate.json").read_text(encoding="utf-8")))


def run(task: str, variant: str, files: Files, model: Path, cores: int) -> Values:
    """Measure one whole command."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder)
        log = Path(tempfile.gettempdir()) / f"as_typed-{task}-{variant}.log"
        if variant == OURS:
            used = measuring.command(*our_command(task, files, model, output), log=log, cores=cores)
            return {**used, "rate": our_rate(output)}
        command = trainer_command(task, files, model, output)
        used = measuring.command(*command, log=log, cores=cores, **measuring.only("TORCH"))
        return {**used, "rate": trainer_rate(output)}


ARGUMENTS: dict[str, dict[str, Any]] = {
    "--model": {"required": True, "type": Path, "metavar": "FOLDER", "help": "Hugging Face BERT"},
    "--tasks": {"nargs": "+", "choices": SAMPLES, "default": list(SAMPLES), "help": "to fine-tune on"},
    "--cores": {"nargs": "+", "type": positive, "default": [usable_cores()], "metavar": "N", "help": "to run on"},
    "--data": {"type": Path, "default": measuring.real_data_root(), "metavar": "DIR", "help": "with glue/ and squad/"},
    "--table": {"type": Path, "metavar": "FILE", "help": "CSV with the columns text and label, for the task table"},
}


@measuring.benchmark(ARGUMENTS, rounds=3)
def main(options: argparse.Namespace) -> list[str]:
    measuring.require(["torch", "accelerate"])
    model = options.model.resolve()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        files = {task: write_data(task, options, root) for task in options.tasks}
        variants = {
            (task, cores, variant): partial(run, task, variant, files[task], model, cores)
            for task in options.tasks
            for cores in options.cores
            for variant in (OURS, TRAINER)
        }
        result = measuring.alternate(variants, options.rounds)
    header = ["one epoch"]
    header += [f"{title}, {whose}" for title, *_ in COLUMNS for whose in ("here", "Trainer")]
    rows = [[*header, "quicker"]]
    for task in options.tasks:
        for cores in options.cores:
            pair = [(task, cores, variant) for variant in (OURS, TRAINER)]
            cells = [measuring.spread(result.values(key, name), form) for _, name, form in COLUMNS for key in pair]
            ratios = measuring.spread(result.ratios(pair[1], pair[0], "seconds"))
            rows.append([f"{task}, {SAMPLES[task]:,} samples, {cores} cores", *cells, ratios])
    return [measuring.markdown(rows)]


if __name__ == "__main__":
    sys.exit(main())
