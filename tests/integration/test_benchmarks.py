"""The benchmarks measure, compute and report what they claim; speed itself is not tested."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import pretraining
from benchmarks.measuring import Measured, alternate
from benchmarks.pretraining import OURS, PYTORCH, SPEED
from benchmarks.samples import full_sequences, hugging_face_samples
from tests.support.runs import read_json

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


def test_ratios_are_computed_within_each_round() -> None:
    measured = make_measured({OURS: [30.0, 10.0, 40.0], FAST: [10.0, 4.0, 10.0]})
    assert measured.ratios((OURS, "mini"), (FAST, "mini"), SPEED) == [3.0, 2.5, 4.0]
    assert measured.median((OURS, "mini"), SPEED) == 30.0


def test_the_fastest_of_several_ways_counts_in_each_round() -> None:
    measured = make_measured({OURS: [30.0, 30.0], "pytorch": [9.0, 10.0], FAST: [10.0, 5.0]})
    assert pretraining.over_best(measured, "mini", list(PYTORCH)) == [3.0, 3.0]
    assert pretraining.over_best(measured, "small", list(PYTORCH)) == []


def test_a_goal_that_was_not_measured_is_not_reached() -> None:
    measured = make_measured({FAST: [30.0], "pytorch": [10.0]})
    measured.rounds.update(make_measured({OURS: [30.0]}, memory=1250.0).rounds)
    # 1.05 × the best of PyTorch is not reached (1.0), TensorFlow is unknown, 1.3 of the memory is not exceeded.
    assert [goal.reached for goal in pretraining.goals(measured, ["mini"])] == [False, None, True]


def test_all_competitors_predict_the_same_words() -> None:
    data = full_sequences()
    theirs = hugging_face_samples(data)
    assert np.all((theirs["labels"] != -100).sum(axis=1) == 20)
    for row in (0, 100):
        np.testing.assert_array_equal(
            theirs["labels"][row, data["masked_lm_positions"][row]], data["masked_lm_ids"][row]
        )


@pytest.mark.long
def test_a_small_run_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.json"
    arguments = ["--sizes", "tiny", "--competitors", OURS, "--rounds", "1", "--steps", "2", "--warm-up", "2"]
    assert pretraining.main([*arguments, "--json", str(results)]) == 0
    written = read_json(results)
    found = {tuple(entry["variant"]): entry["values"] for entry in written["measurements"]}
    assert written["machine"]["cpu_cores_usable"] >= 1
    assert found[OURS, "tiny"]["samples_per_second"] > 0
    assert found[OURS, "tiny"]["first_step_seconds"] > 0
    assert found[OURS, "tiny"]["peak_memory_mib"] > 200
    assert found["TF", "bfloat16"]["gflops"] > 0
    printed = capsys.readouterr().out
    assert "| **this project**" in printed and "| TensorFlow, bfloat16" in printed
    assert "precision auto: stock TensorFlow" in printed
