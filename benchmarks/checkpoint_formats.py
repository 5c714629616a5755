"""Seconds from a file to a model, by format, and to export one: ``python -m benchmarks.checkpoint_formats``.

A pre-training model of random weights is written in every format that a run can start from. Reading includes finding
out what the file is, its architecture, and filling the Hugging Face model that is then converted. Beside it, where
Hugging Face reads the format without PyTorch: ``TFBertForPreTraining.from_pretrained``.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from transformers import TFBertForPreTraining

from benchmarks.jobs import SIZES, VOCABULARY
from benchmarks.tables import NOTHING, machine, markdown
from keras_extensions.backend import keras
from model.architecture import PRETRAINING, Architecture
from model.huggingface import untrained_bert
from tests.equivalence.bert_pairs import architecture, source_with_random_weights
from tests.unit.pretrained.models import built
from tests.unit.pretrained.writers import FORMATS
from utilities.checkpoints.state import save_checkpoint
from utilities.environment import environment_facts
from utilities.export.folder import export
from utilities.pretrained.opening import open_pretrained

OWN, H5 = "this project's", "tf_model.h5 of a called model"
READ = ("safetensors", "safetensors of TensorFlow", "pytorch_model.bin", H5, "bert_model.ckpt")
THEIRS = ("safetensors of TensorFlow", H5)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint_formats", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="base", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    return parser.parse_args(arguments)


def write_own(a: Architecture, folder: Path) -> None:
    """A checkpoint as training writes it."""
    _, blocks = built(PRETRAINING, source_with_random_weights(a), a)
    facts = {"task": PRETRAINING, "architecture": dataclasses.asdict(a), "lower_case": True}
    save_checkpoint(folder, 1, blocks, keras.optimizers.SGD(0.1), facts, None)


def once(folder: Path, target: Any, output: Path, theirs: bool) -> dict[str, float]:
    """Seconds of each way to read the folder, and of its export.

    Args:
        target: the Hugging Face model to fill.
        theirs: whether Hugging Face reads it without PyTorch.
    """
    marks = {"": time.perf_counter()}
    open_pretrained(str(folder), "pretrained_ckpt_path").fill_source(target)
    marks["read"] = time.perf_counter()
    export(str(folder), output, None, lower_case=True)
    marks["export"] = time.perf_counter()
    shutil.rmtree(output)
    if theirs:
        begin = time.perf_counter()
        TFBertForPreTraining.from_pretrained(folder)
        marks["theirs"] = marks["export"] + time.perf_counter() - begin
    return {name: end - begin for (name, end), begin in zip(list(marks.items())[1:], marks.values())}


def measured(a: Architecture, rounds: int, work: Path) -> list[list[str]]:
    """The rows of the table."""
    source, target = source_with_random_weights(a), untrained_bert(a, seed=1)
    folders = {form: FORMATS[form](source, work / form.replace(" ", "-")) for form in READ}
    folders[OWN] = work / "own"
    write_own(a, folders[OWN])
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
    a = architecture(
        hidden_size=size.hidden, num_hidden_layers=size.layers, num_attention_heads=size.heads,
        intermediate_size=4 * size.hidden, vocab_size=VOCABULARY, max_position_embeddings=512,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as work:
        rows = measured(a, options.rounds, Path(work))
    title = f"BERT-{options.size}, seconds, medians of {options.rounds}"
    table = markdown([[title, "file to model", "file to Hugging Face folder", "HF `from_pretrained`"], *rows])
    print("\n\n".join([machine(environment_facts()), table]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
