"""Time to classify short texts, compared with PyTorch and ONNX Runtime: ``python -m benchmarks.prediction``.

A model of random weights is called as a program would call it: ``tasks.load``, and peers as their users write them,
which sort the texts by length and compute batches of 64. Each competitor has a process of its own in each round. Its
start is the import of its libraries, the model's loading and a first answer.
"""

from __future__ import annotations

import argparse
import csv
import functools
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import measuring
from benchmarks.measuring import FRAMEWORKS, Column, Measured, Values, only
from benchmarks.samples import WORDS
from data_utils.command_line import positive

TEXTS = "glue/SST-2/train.tsv"  # in the folder of real data
BATCH = 64
SIZES = {"2 × 192": (2, 192), "6 × 384": (6, 384)}  # layers, hidden size
OURS, PYTORCH, ONNX = "this project", "PyTorch", "ONNX Runtime"
FORMATS = ("float32", "bfloat16")
START, MANY, ONE, FIRST, MEMORY = "start", "many", "one", "first", "memory"
CALLS, SINGLE_CALLS, FIRST_CALLS = 3, 300, 10  # the first calls are those after the start

Answer = Callable[[list[str]], Any]  # from texts to the probabilities of their classes


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


def this_project(folder: str, number_format: str) -> Answer:
    from tasks import load

    return load(folder, precision=number_format)


def by_length(folder: str, run: Callable[[dict[str, Any]], np.ndarray], tensors: str) -> Answer:
    """Return a function that sorts texts by length and computes them in batches; it computes a single text as it is.

    Args:
        run: returns the logits of a batch of the tokenizer.
        tensors: kind of the arrays in a batch, as the tokenizer calls them.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)

    def probabilities_of(batch: dict[str, Any]) -> np.ndarray:
        logits = run(batch)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities: np.ndarray = shares / shares.sum(axis=1, keepdims=True)
        return probabilities

    def answer(texts: list[str]) -> np.ndarray:
        if len(texts) == 1:
            return probabilities_of(dict(tokenizer(texts, truncation=True, max_length=128, return_tensors=tensors)))
        ids = tokenizer(texts, truncation=True, max_length=128)["input_ids"]
        order = sorted(range(len(texts)), key=lambda number: -len(ids[number]))
        probabilities = np.zeros((len(texts), 2), np.float32)
        for begin in range(0, len(order), BATCH):
            rows = order[begin : begin + BATCH]
            batch = tokenizer.pad({"input_ids": [ids[row] for row in rows]}, return_tensors=tensors)
            batch["token_type_ids"] = batch["input_ids"] * 0
            probabilities[rows] = probabilities_of(dict(batch))
        return probabilities

    return answer


def pytorch(folder: str, number_format: str) -> Answer:
    import torch
    from transformers import AutoModelForSequenceClassification

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=getattr(torch, number_format)).eval()

    def run(batch: dict[str, Any]) -> np.ndarray:
        with torch.inference_mode():
            logits: np.ndarray = model(**batch).logits.float().numpy()
        return logits

    return by_length(folder, run, "pt")


def onnx_runtime(folder: str, number_format: str) -> Answer:
    import onnxruntime

    assert number_format == FORMATS[0]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])
    return by_length(folder, lambda batch: session.run(["logits"], batch)[0], "np")


def measure(competitor: str, folder: str, count: int, cores: int, number_format: str) -> Values:
    """Return the seconds of the start and of calls, and the peak memory in MiB, of this process."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    texts = read_texts(count)
    load = {OURS: this_project, PYTORCH: pytorch, ONNX: onnx_runtime}[competitor]

    def seconds(given: list[str]) -> float:
        begin = time.perf_counter()
        answer(given)
        return time.perf_counter() - begin

    begin = time.perf_counter()
    answer = load(folder, number_format)
    answer(texts[:1])
    values = {START: time.perf_counter() - begin}
    one_by_one = [seconds([text]) for text in texts[:SINGLE_CALLS]]
    values[FIRST], values[ONE] = median(one_by_one[:FIRST_CALLS]), median(one_by_one[len(one_by_one) // 2 :])
    seconds(texts)
    values[MANY] = median(seconds(texts) for _ in range(CALLS))
    return {**values, MEMORY: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def read_texts(count: int) -> list[str]:
    with open(measuring.real_data_root() / TEXTS, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row["sentence"].strip() for row in rows[:: max(1, len(rows) // count)][:count]]


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
        for size in options.sizes:
            layers, hidden = SIZES[size]
            onnx, folder = FORMATS[0] in competitors, f"{place}/{size}"
            measuring.in_process(write_model, only("TORCH"), folder=folder, layers=layers, hidden=hidden, onnx=onnx)
        variants = {
            (size, f"{cores} cores", number_format, competitor): functools.partial(
                measuring.in_process, measure, only(FRAMEWORKS[competitor != OURS]),
                competitor=competitor, folder=f"{place}/{size}", count=options.texts, cores=cores,
                number_format=number_format,
            )
            for size in options.sizes
            for cores in options.cores
            for number_format, names in competitors.items()
            for competitor in names
        }  # fmt: skip
        measured = measuring.alternate(variants, options.rounds)
    return [about(options), table(measured)]


def about(options: argparse.Namespace) -> str:
    return (
        f"{options.texts:,} texts of SST-2, median (min–max) of {options.rounds} rounds: seconds of the start and of a"
        f" call with all texts (median of {CALLS}, the first one left out); milliseconds for one text after the other,"
        f" at first ({FIRST_CALLS} calls) and then. Peers: sorted by length, batches of {BATCH}, inference_mode."
    )


def table(measured: Measured) -> str:
    def as_fast(name: str) -> Callable[[Any], list[float]]:
        return lambda variant: [] if variant[-1] == OURS else measured.ratios(variant, (*variant[:-1], OURS), name)

    columns = [
        measured.column("start", START),
        measured.column("all texts", MANY),
        Column("we are as fast", as_fast(MANY), "{:.2f} ×"),
        measured.column("one, at first", FIRST, "{:.1f}", 1000),
        measured.column("one", ONE, "{:.2f}", 1000),
        Column("we are as fast, one", as_fast(ONE), "{:.2f} ×"),
        measured.column("MiB", MEMORY, "{:,.0f}"),
    ]
    variants: list[Any] = list(measured.rounds)
    titles = {variant: ", ".join(variant) for variant in variants}
    return measuring.table("model, cores, format, program", titles, columns)


if __name__ == "__main__":
    sys.exit(main())
