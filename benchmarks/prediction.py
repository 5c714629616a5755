"""Time to classify short texts, compared with PyTorch and ONNX Runtime: ``python -m benchmarks.prediction``.

Whole commands, from a CSV file of texts to one of probabilities, in alternation: ``tasks.classify --file``, and two
scripts as their users write them, which sort the texts by length and compute batches of 64. Models have random weights.
The start is a command with five texts; what a command takes beyond it is the time after the start.
"""

from __future__ import annotations

import argparse
import csv
import functools
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measuring
from benchmarks.measuring import FRAMEWORKS, NOTHING, Measured, Values, only
from benchmarks.samples import WORDS
from data_utils.command_line import positive
from utilities.files import PROJECT

TEXTS = "glue/SST-2/train.tsv"  # in the folder of real data
TEXT, BATCH, FEW = "sentence", 64, 5
SIZES = {"2 × 192": (2, 192), "6 × 384": (6, 384)}  # layers, hidden size
OURS, PYTORCH, ONNX = "this project", "PyTorch", "ONNX Runtime"
FORMATS = ("float32", "bfloat16")
WALL, PROCESSOR = "wall", "processor"


def write_model(folder: str, layers: int, hidden: int, onnx: bool) -> None:
    """Write a classifier of random weights as a Hugging Face folder, and for ONNX Runtime as ``model.onnx``."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    torch.manual_seed(1)
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": 4 * hidden}
    model = BertForSequenceClassification(BertConfig(num_attention_heads=hidden // 32, **sizes)).eval()
    model.save_pretrained(folder)
    BertTokenizerFast(str(measuring.real_data_root() / WORDS)).save_pretrained(folder)
    if onnx:
        names = ["input_ids", "attention_mask", "token_type_ids"]
        axes = {name: {0: "batch", 1: "length"} for name in names}
        example = tuple(torch.ones(2, 8, dtype=torch.int64) for _ in names)
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            model, example, path, input_names=names, output_names=["logits"], dynamic_axes=axes, dynamo=False
        )


def by_length(folder: str, source: str, output: str, run: Callable[[dict[str, Any]], np.ndarray], tensors: str) -> None:
    """Write the probabilities of a file's texts, computed in batches of about equal length.

    Args:
        run: returns the logits of a batch of the tokenizer.
        tensors: kind of the arrays in a batch, as the tokenizer calls them.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    with open(source, encoding="utf-8", newline="") as file:
        texts = [row[TEXT] for row in csv.DictReader(file)]
    ids = tokenizer(texts, truncation=True, max_length=128)["input_ids"]
    order = sorted(range(len(texts)), key=lambda number: -len(ids[number]))
    probabilities = np.zeros((len(texts), 2), np.float32)
    for begin in range(0, len(order), BATCH):
        rows = order[begin : begin + BATCH]
        batch = tokenizer.pad({"input_ids": [ids[row] for row in rows]}, return_tensors=tensors)
        batch["token_type_ids"] = batch["input_ids"] * 0
        logits = run(dict(batch))
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities[rows] = shares / shares.sum(axis=1, keepdims=True)
    with open(output, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([text, *row] for text, row in zip(texts, probabilities.tolist()))


def pytorch(folder: str, source: str, output: str, number_format: str) -> None:
    """Classify with PyTorch."""
    import torch
    from transformers import AutoModelForSequenceClassification

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=getattr(torch, number_format)).eval()

    def run(batch: dict[str, Any]) -> np.ndarray:
        with torch.inference_mode():
            logits: np.ndarray = model(**batch).logits.float().numpy()
        return logits

    by_length(folder, source, output, run, "pt")


def onnx_runtime(folder: str, source: str, output: str, number_format: str) -> None:
    """Classify with ONNX Runtime, in float32."""
    import onnxruntime

    assert number_format == FORMATS[0]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])
    by_length(folder, source, output, lambda batch: session.run(["logits"], batch)[0], "np")


def line(competitor: str, folder: Path, source: Path, output: Path, number_format: str) -> list[str]:
    """Return the command line of a competitor."""
    if competitor == OURS:
        given = ["--checkpoint", folder, "--file", source, "--text", TEXT, "--output", output]
        return [sys.executable, "-m", "tasks.classify", *map(str, given), "--precision", number_format]
    function = {PYTORCH: "pytorch", ONNX: "onnx_runtime"}[competitor]
    given = [folder, source, output, number_format]
    call = f"from benchmarks.prediction import {function} as run; run(*{list(map(str, given))})"
    return [sys.executable, "-c", call]


def timed(words: list[str], cores: int, environment: dict[str, str]) -> Values:
    """Run a command on some cores, and return its seconds."""
    chosen = set(sorted(os.sched_getaffinity(0))[:cores])
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        words, cwd=PROJECT, env={**os.environ, **environment}, check=True, capture_output=True,
        preexec_fn=lambda: os.sched_setaffinity(0, chosen),
    )  # fmt: skip
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {WALL: wall, PROCESSOR: after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def measure(competitor: str, folder: Path, source: Path, cores: int, number_format: str) -> Values:
    """Return the wall and processor seconds of a whole command."""
    environment = only(FRAMEWORKS[competitor != OURS])
    with tempfile.TemporaryDirectory() as place:
        return timed(line(competitor, folder, source, Path(place) / "out.csv", number_format), cores, environment)


def write_texts(path: Path, count: int) -> Path:
    with open(measuring.real_data_root() / TEXTS, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    texts = [row["sentence"].strip() for row in rows[:: max(1, len(rows) // count)][:count]]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([[TEXT], *([text] for text in texts)])
    return path


OPTIONS: dict[str, dict[str, Any]] = {
    "--texts": {"type": positive, "default": 5000, "metavar": "N", "help": "texts of SST-2"},
    "--cores": {"type": positive, "nargs": "+", "default": [1, 2], "metavar": "N", "help": "numbers of cores"},
    "--formats": {"nargs": "+", "choices": FORMATS, "default": FORMATS, "help": "number formats"},
    "--sizes": {"nargs": "+", "choices": tuple(SIZES), "default": tuple(SIZES), "help": "models"},
}


@measuring.benchmark(OPTIONS, rounds=3)
def main(options: argparse.Namespace) -> list[str]:
    root = measuring.real_data_root()
    measuring.require(["torch", "onnx", "onnxruntime"], [root / TEXTS, root / WORDS])
    competitors = {each: (OURS, PYTORCH, ONNX) if each == FORMATS[0] else (OURS, PYTORCH) for each in options.formats}
    with tempfile.TemporaryDirectory() as place:
        files = {count: write_texts(Path(place) / f"{count}.csv", count) for count in (FEW, options.texts)}
        for size in options.sizes:
            layers, hidden = SIZES[size]
            onnx, folder = FORMATS[0] in competitors, f"{place}/{size}"
            measuring.in_process(write_model, only("TORCH"), folder=folder, layers=layers, hidden=hidden, onnx=onnx)
        variants = {
            (size, f"{cores} cores", number_format, competitor, count): functools.partial(
                measure, competitor, Path(place) / size, file, cores, number_format
            )
            for size in options.sizes
            for cores in options.cores
            for number_format, names in competitors.items()
            for competitor in names
            for count, file in files.items()
        }
        measured = measuring.alternate(variants, options.rounds)
    return [about(options), table(measured, options.texts)]


def about(options: argparse.Namespace) -> str:
    return (
        f"{options.texts:,} texts of SST-2, seconds; whole commands, and after the start (without that of {FEW} texts);"
        f" median (min–max) of {options.rounds} rounds. Peers: sorted by length, batches of {BATCH}, inference_mode."
    )


def table(measured: Measured, texts: int) -> str:
    rows = [["model, cores, format", "competitor", "wall", "start", "after the start", "processor", "as fast, after"]]
    variants: list[Any] = [variant for variant in measured.rounds if variant[-1] == texts]  # type: ignore[index]
    for variant in variants:
        *where, competitor, _ = variant
        after = after_start(measured, variant)
        own = after_start(measured, (*where, OURS, texts))
        ratios = [theirs / ours for theirs, ours in zip(after, own)]
        few = (*where, competitor, FEW)
        rows.append(
            [
                ", ".join(map(str, where)),
                competitor,
                measuring.spread(measured.values(variant, WALL)),
                measuring.spread(measured.values(few, WALL)),
                measuring.spread(after),
                measuring.spread(measured.values(variant, PROCESSOR)),
                NOTHING if competitor == OURS else measuring.spread(ratios, "{:.2f} ×"),
            ]
        )
    return measuring.markdown(rows)


def after_start(measured: Measured, variant: Any) -> list[float]:
    few = (*variant[:-1], FEW)
    return [whole - start for whole, start in zip(measured.values(variant, WALL), measured.values(few, WALL))]


if __name__ == "__main__":
    sys.exit(main())
