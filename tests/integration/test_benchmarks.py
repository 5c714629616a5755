"""The benchmarks measure, compute and report what they claim; speed itself is not tested."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks import pretraining
from benchmarks.measuring import Measured, alternate
from benchmarks.pretraining import OURS, PYTORCH
from benchmarks.samples import full_sequences, hugging_face_samples

FAST = "pytorch-bfloat16"


def make_measured(speeds: dict[str, list[float]], memory: float = 1000.0) -> Measured:
    measured = Measured()
    for competitor, values in speeds.items():
        for value in values:
            figures = {"samples_per_second": value, "peak_memory_mib": memory, "first_step_seconds": 20.0}
            measured.add((competitor, "mini"), figures)
    return measured


def test_competitors_take_turns_within_each_round() -> None:
    order: list[str] = []
    variants = {name: lambda name=name: order.append(name) or {"value": float(len(order))} for name in "ab"}
    measured = alternate(variants, 2)
    assert "".join(order) == "abab"
    assert measured.values("b", "value") == [2.0, 4.0]
    alternate(variants, 2, mirrored=True)
    assert "".join(order) == "abababba"


def test_the_fastest_of_several_ways_counts_in_each_round() -> None:
    measured = make_measured({OURS: [30.0, 30.0], "pytorch": [9.0, 10.0], FAST: [10.0, 5.0]})
    assert pretraining.over_best(measured, "mini", list(PYTORCH)) == [3.0, 3.0]
    assert pretraining.over_best(measured, "small", list(PYTORCH)) == []


def test_all_competitors_predict_the_same_words() -> None:
    data = full_sequences()
    theirs = hugging_face_samples(data)
    assert np.all((theirs["labels"] != -100).sum(axis=1) == 20)
    for row in (0, 100):
        np.testing.assert_array_equal(
            theirs["labels"][row, data["masked_lm_positions"][row]], data["masked_lm_ids"][row]
        )


@pytest.mark.long
def test_a_small_run_from_end_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--sizes", "tiny", "--competitors", OURS, "--rounds", "1", "--steps", "2", "--warm-up", "2"]
    assert pretraining.main(arguments) == 0
    printed, progress = capsys.readouterr()
    rows = re.findall(r"^\| \*\*this project\*\*.*\| +([\d.,]+) \|$", printed, re.M)
    speed, memory, first_step = (float(value.replace(",", "")) for value in rows)
    assert speed > 0 and memory > 200 and first_step > 0
    assert "| TensorFlow, bfloat16" in printed and "precision auto: stock TensorFlow" in printed
    assert "round 1 of 1, ours, tiny: samples_per_second" in progress
