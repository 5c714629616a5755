"""The benchmarks of SQuAD compute and report what they say; how fast anything is, no test can tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import squad_features, squad_training
from benchmarks.jobs import OURS
from tests.unit.squad.data import random_document, write_vocabulary
from utilities.environment import environment_facts


def test_features_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vocabulary, data = write_vocabulary(tmp_path).path, tmp_path / "train.json"
    data.write_text(json.dumps(random_document(3)), encoding="utf-8")
    arguments = ["--data", str(data), "--vocab-file", str(vocabulary), "--rounds", "1", "--questions", "4"]
    assert squad_features.main(arguments) == 0
    output = capsys.readouterr().out
    rows = [line.split("|") for line in output.splitlines() if line.startswith("|")]
    assert rows[0][1].strip() == "4 questions"
    assert [int(row[2]) for row in rows[2:]] == [4, 4, 4]  # all contexts are shorter than a window
    assert "reached" in output


def test_features_need_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert squad_features.main(["--data", str(tmp_path / "absent.json")]) == 2
    assert "absent.json: cannot be read" in capsys.readouterr().err


def test_ratios_of_training_are_taken_within_a_round() -> None:
    options = squad_training.parse(["--sizes", "mini", "--competitors", OURS, "hf-pytorch", "--rounds", "3"])
    speeds = {(OURS, "mini"): [30.0, 10.0, 40.0], ("hf-pytorch", "mini"): [10.0, 5.0, 10.0]}
    text = squad_training.report(speeds, options, environment_facts())
    assert "30.00" in text
    assert "3.00 ×" in text
