"""Seconds from a file to a model, by format, and to export one: ``python -m benchmarks.checkpoint_formats``.

A pre-training model of random weights is written in every format that a run can start from. Reading includes finding
out what the file is, its architecture, and filling the Hugging Face model that is then converted. Beside it, where
Hugging Face reads the format without PyTorch: ``TFBertForPreTraining.from_pretrained``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from transformers import TFBertForPreTraining

from benchmarks.jobs import SIZES, VOCABULARY
from benchmarks.tables import NOTHING, machine, markdown
from checkpoints.export.folder import export
from checkpoints.pretrained.opening import open_pretrained
from model.architecture import PRETRAINING
from model.huggingface import untrained
from tests.equivalence.bert_pairs import architecture
from tests.unit.checkpoints.pretrained.saved import save
from tests.unit.checkpoints.pretrained.writers import FORMATS
from utilities.environment import environment_facts

OWN, H5 = "this project's", "tf_model.h5 of a called model"
READ = ("safetensors", "safetensors of TensorFlow", "pytorch_model.bin", H5, "bert_model.ckpt")
THEIRS = ("safetensors of TensorFlow", H5)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint_formats", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="base", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    return parser.parse_args(arguments)


def seconds(action: Callable[..., object], *arguments: object) -> float:
    """Of the wall clock."""
    begin = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - begin


def read(folder: Path, target: Any) -> None:
    """From the files to a filled Hugging Face model."""
    open_pretrained(str(folder), "pretrained_ckpt_path").fill_source(target)


def once(folder: Path, target: Any, output: Path, theirs: bool) -> dict[str, float]:
    """Seconds of each way to read the folder, and of its export.

    Args:
        target: the Hugging Face model to fill.
        theirs: whether Hugging Face reads it without PyTorch.
    """
    found = {"read": seconds(read, folder, target), "export": seconds(export, str(folder), output, None, True)}
    shutil.rmtree(output)
    if theirs:
        found["theirs"] = seconds(TFBertForPreTraining.from_pretrained, folder)
    return found


def measured(sizes: dict[str, int], rounds: int, work: Path) -> list[list[str]]:
    """The rows of the table."""
    source = save(PRETRAINING, sizes, work / "own").source
    target = untrained(PRETRAINING, architecture(**sizes), seed=1)
    folders = {form: FORMATS[form](source, work / form.replace(" ", "-")) for form in READ}
    folders[OWN] = work / "own"
    times: dict[str, list[dict[str, float]]] = {form: [] for form in folders}
    for _ in range(rounds):
        for form, folder in folders.items():
            times[form].append(once(folder, target, work / "exported", form in THEIRS))
    return [[form, *(cell(found, column) for column in ("read", "export", "theirs"))] for form, found in times.items()]


def cell(found: list[dict[str, float]], column: str) -> str:
    """A median."""
    return f"{median(one[column] for one in found):.2f}" if column in found[0] else NOTHING


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print the table on standard output."""
    options = parse(arguments)
    size = SIZES[options.size]
    sizes = {
        "hidden_size": size.hidden, "num_hidden_layers": size.layers, "num_attention_heads": size.heads,
        "intermediate_size": 4 * size.hidden, "vocab_size": VOCABULARY, "max_position_embeddings": 512,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as work:
        rows = measured(sizes, options.rounds, Path(work))
    title = f"BERT-{options.size}, seconds, medians of {options.rounds}"
    table = markdown([[title, "file to model", "file to Hugging Face folder", "HF `from_pretrained`"], *rows])
    print("\n\n".join([machine(environment_facts()), table]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
