"""The benchmarks measure, compute and report what they claim; speed itself is not tested."""

from __future__ import annotations

import re

import numpy as np

from benchmarks import prediction, speed
from benchmarks.measuring import Measured, alternate
from benchmarks.samples import full_sequences, hugging_face_samples
from benchmarks.speed import OURS, SPEED


def test_competitors_take_turns_within_each_round() -> None:
    order: list[str] = []
    variants = {name: lambda name=name: order.append(name) or {"value": float(len(order))} for name in "ab"}
    measured = alternate(variants, 2)
    assert "".join(order) == "abab"
    assert measured.values("b", "value") == [2.0, 4.0]
    alternate(variants, 2, mirrored=True)
    assert "".join(order) == "abababba"


def test_ratios_are_to_each_competitor_and_to_the_best_within_a_round() -> None:
    measured, rows = Measured(), {OURS: [30, 10, 40], "pytorch": [10, 5, 10], "pytorch-bfloat16": [5, 10, 20]}
    for name, speeds in rows.items():
        for value in speeds:
            measured.add((name, "squad, mini"), {SPEED: value})
    options = speed.main.parser.parse_args(["--tasks", "squad", "--sizes", "mini", "base", "--competitors", *rows])
    text = "\n".join(speed.report(measured, options))
    assert re.search(r"precision auto +\| +30\.00 \(10\.00–40\.00\) \| +– \|\n", text)
    assert re.search(r"PyTorch, float32 +\| +3\.00 × \(2\.00–4\.00\) \| +– \|\n", text)
    assert re.search(r"the best of PyTorch's +\| +2\.00 × \(1\.00–3\.00\) \| +– \|\n", text)


def test_predictions_are_as_fast_as_a_peer_within_a_round() -> None:
    measured, where = Measured(), ("2 × 192", "1 cores", "float32")
    for ours, theirs in ((4.0, 8.0), (5.0, 20.0)):
        for name, seconds in ((prediction.OURS, ours), (prediction.PYTORCH, theirs)):
            values = dict.fromkeys((prediction.START, prediction.FIRST, prediction.MEMORY), 1.0)
            measured.add((*where, name), {**values, prediction.MANY: seconds, prediction.ONE: seconds / 500})
    rows = prediction.table(measured).splitlines()
    assert re.search(r"PyTorch +\|.* 14\.00 \(8\.00–20\.00\) \| +3\.00 × \(2\.00–4\.00\) \|", rows[-1])
    assert re.search(r" 28\.00 \(16\.00–40\.00\) \| +3\.00 × \(2\.00–4\.00\) \|", rows[-1])
    assert re.search(r"this project +\|.* – \|", rows[-2])


def test_all_competitors_predict_the_same_words() -> None:
    data = full_sequences()
    theirs = hugging_face_samples(data)
    assert np.all((theirs["labels"] != -100).sum(axis=1) == 20)
    for row in (0, 100):
        np.testing.assert_array_equal(
            theirs["labels"][row, data["masked_lm_positions"][row]], data["masked_lm_ids"][row]
        )
