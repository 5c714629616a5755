# PYTHON_ARGCOMPLETE_OK
"""The demo: trains a BERT-tiny on ever longer sequences of a corpus made from Python's documentation.

``python -m tasks.demo`` runs the commands that a user would type, and prints each before it runs: a dump of
documentation texts, the whole preparation to TFRecords of each length, and the trainings of ``configs/demo``. Later
demos use the prepared data again.
"""

from __future__ import annotations

import os
import sys

if not __package__:  # started by its path, from any folder
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

import argparse
import math
import shlex
import subprocess
import time
from pathlib import Path
from typing import List, NamedTuple, Optional, Sequence

from data_utils.records.manifest import load_manifest
from reports.run_files import read_run_folder
from settings.loading import load_config
from settings.schema import TrainingConfig
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import PROJECT
from utilities.metric_names import MLM_LOSS
from utilities.tables import aligned

CONFIGS = PROJECT / "configs" / "demo"
PHASES = ("short", "phase1", "phase2")  # 32, 128, 384 tokens
WORDS = 400_000
DUPLICATE_FACTOR = 10  # enough passes that training sees no masking twice
VALIDATION_FRACTION = 0.1  # of the documents, which are held out
TEXT_NAME = "corpus.txt"


class Result(NamedTuple):
    """The result of a phase; losses and entropies in nats.

    Attributes:
        title: Title of the phase.
        masked_lm_loss: Mean over the documents that were held out.
        context_free: What predictions without context reach on these documents.
        unigram_entropy: Entropy of the corpus' word pieces.
        pieces: Size of the vocabulary.
        report: HTML file of the report.
    """

    title: str
    masked_lm_loss: float
    context_free: float
    unigram_entropy: float
    pieces: int
    report: Path


def run_demo(configs: Sequence[Path], words: int = WORDS) -> List[Result]:
    """Prepare the data, train one phase after the other, and print the results.

    Args:
        configs: Configs of the phases, in order; each starts from the checkpoint of the previous one.
        words: Size of the corpus, if it does not exist yet.

    Raises:
        UserError: A step failed.
    """
    started = time.monotonic()
    phases = [load_config("pretraining", ["--config", str(path)]).config for path in configs]
    prepare(phases, words)
    prepared = time.monotonic()
    number = free_number(phases)
    checkpoints: Optional[Path] = None
    results = []
    for path, config in zip(configs, phases):
        name = f"{path.stem}-{number}"
        run = Path(config.output_dir) / name
        title = f"{config.max_seq_length} tokens"
        flags = ["--config", shown(path), "--name", name]
        if checkpoints is not None:
            flags += ["--pretrained-ckpt-path", shown(checkpoints)]
        execute(f"pre-training, {title}", [shown(PROJECT / "run_pretraining.py"), *flags])
        checkpoints = run / "checkpoints"
        results.append(read_result(title, run, config))
    print_results(results)
    now = time.monotonic()
    print(f"\nThe demo took {now - started:.0f} s, {prepared - started:.0f} s of them for the data.")
    return results


def prepare(phases: Sequence[TrainingConfig], words: int) -> None:
    """Make the data of all phases, with one vocabulary, unless all of it is ready; an existing text is used again.

    Args:
        phases: Configs, which give the data's folders and properties; the first one's folder also has the corpus.
        words: Size of the corpus.
    """
    first = data_folder(phases[0])
    text = first.parent / TEXT_NAME
    if all(is_ready(config) for config in phases):
        folders = ", ".join(shown(data_folder(config)) for config in phases)
        print(f"The data is prepared already: {folders}. (To make it again, remove {shown(first.parent)}.)")
        return
    if not text.exists():
        command = ["-m", "data_utils.demo_corpus", "--output", shown(text), "--words", str(words)]
        execute("a corpus from the documentation that Python and its packages carry", command)
    for position, config in enumerate(phases):
        if position == 0:
            source = ["--text", shown(text), "--vocab-size", str(vocabulary_size(config))]
        else:
            source = ["--sentences", shown(first / "corpus"), "--vocab-file", shown(first / "vocab.txt")]
        output = data_folder(config)
        sizes = ["--max-seq-length", str(config.max_seq_length)]
        sizes += ["--max-predictions", str(config.max_predictions_per_seq)]
        sizes += ["--duplicate-factor", str(DUPLICATE_FACTOR), "--validation-fraction", str(VALIDATION_FRACTION)]
        again = ["--overwrite"] if output.exists() else []
        command = ["-m", "data_utils.text", *source, "--output", shown(output), *sizes, *again]
        execute(f"records of {config.max_seq_length} tokens", command)


def is_ready(config: TrainingConfig) -> bool:
    """Return whether the data of a phase is complete and fits the config; the manifest is written last."""
    folder = data_folder(config)
    manifest = load_manifest(folder) if folder.is_dir() else None
    if manifest is None:
        return False
    names = ("vocab_size", "max_seq_length", "max_predictions_per_seq", "validation_fraction")
    required = (vocabulary_size(config), config.max_seq_length, config.max_predictions_per_seq, VALIDATION_FRACTION)
    return required == tuple(manifest.settings.get(name) for name in names)


def execute(what: str, arguments: Sequence[str]) -> None:
    """Print a Python command and run it on this terminal.

    Raises:
        UserError: The command failed; it has printed its own message.
    """
    interpreter = Path(sys.executable)
    print(f"\n=== {what}\n$ {shlex.join([shown(interpreter), *arguments])}", flush=True)
    status = subprocess.run([str(interpreter), *arguments], cwd=PROJECT, check=False).returncode
    if status:
        raise UserError(f"the command above ended with status {status}; fix its error and start the demo again")


def free_number(phases: Sequence[TrainingConfig]) -> int:
    """Return the first number that is not used in the name of an earlier demo's run."""
    taken = [path.name for config in phases for path in Path(config.output_dir).glob("*-*")]
    numbers = [int(name.rpartition("-")[2]) for name in taken if name.rpartition("-")[2].isdigit()]
    return max(numbers, default=0) + 1


def read_result(title: str, run: Path, config: TrainingConfig) -> Result:
    """Read the result from a run's folder."""
    data = read_run_folder(run)
    return Result(
        title,
        float(data.scores[MLM_LOSS]),
        float(data.dataset["held_out_context_free.loss_nats"]),
        float(data.dataset["unigram_entropy_nats"]),
        vocabulary_size(config),
        run / "report.html",
    )


def print_results(results: Sequence[Result]) -> None:
    """Print the held-out losses, compared with baselines."""
    rows = [
        ["", *(result.title for result in results)],
        ["masked-LM loss, held-out text", *(f"{result.masked_lm_loss:.3f} nats" for result in results)],
        ["context-free baseline", *(f"{result.context_free:.3f} nats" for result in results)],
        ["unigram baseline", *(f"{result.unigram_entropy:.3f} nats" for result in results)],
        ["uniform baseline, ln(vocabulary)", *(f"{math.log(result.pieces):.3f} nats" for result in results)],
    ]
    print("\n=== what BERT learned")
    print("\n".join(aligned(rows, "<>")))
    print("(Context-free baseline: what the frequencies of the pieces reach alone. Unigram baseline: their entropy.)\n")
    for result in results:
        print(f"report on {result.title}: {shown(result.report)}")


def data_folder(config: TrainingConfig) -> Path:
    """Return the folder of a phase's records."""
    assert config.dataset_dir is not None, "the demo's configs name their data"
    return Path(config.dataset_dir)


def vocabulary_size(config: TrainingConfig) -> int:
    """Return the number of word pieces that a phase's config asks for."""
    assert config.bert_config is not None, "the rules ask for bert_config in pre-training"
    return config.bert_config.vocab_size


def shown(path: Path) -> str:
    """Return a path as a user in the project's folder would type it."""
    absolute = Path(os.path.abspath(path))
    return str(absolute.relative_to(PROJECT)) if PROJECT in absolute.parents else str(absolute)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; return 0, 2 if a step failed, 130 after Ctrl-C."""
    parser = make_parser("tasks.demo", __doc__.splitlines()[0])
    parser.add_argument(
        "--config", type=Path, nargs="+", metavar="FILE", help="one config a phase (default: those of configs/demo)"
    )
    parser.add_argument("--words", type=int, default=WORDS, metavar="N", help=f"of the corpus (default: {WORDS:,})")
    return run_main(parser, _run, arguments)


def _run(options: argparse.Namespace) -> None:
    os.chdir(PROJECT)
    run_demo(options.config or [CONFIGS / f"{name}.json" for name in PHASES], options.words)


if __name__ == "__main__":
    sys.exit(main())
