"""The benchmarks of SQuAD compute and report what they say; how fast anything is, no test can tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import squad_features, squad_training
from benchmarks.measuring import Measured
from benchmarks.samples import REAL, squad_windows
from benchmarks.squad_training import OURS, SPEED
from tests.real_data import real_data, real_data_root
from tests.unit.data_utils.squad.data import random_document, write_vocabulary


def test_features_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vocabulary, data = write_vocabulary(tmp_path).path, tmp_path / "train.json"
    data.write_text(json.dumps(random_document(3)), encoding="utf-8")
    arguments = ["--data", str(data), "--vocab-file", str(vocabulary), "--rounds", "1", "--questions", "4"]
    assert squad_features.main(arguments) == 0
    output = capsys.readouterr().out
    rows = [line.split("|") for line in output.splitlines() if line.startswith("|")]
    assert rows[0][1].strip() == "4 questions"
    assert [int(row[2]) for row in rows[2:5]] == [4, 4, 4]  # all contexts are shorter than a window
    assert "reached" in output


def test_features_need_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert squad_features.main(["--data", str(tmp_path / "absent.json")]) == 2
    error = capsys.readouterr().err
    assert "absent.json does not exist" in error and error.count("\n") == 1


def measured_of(speeds: dict[str, list[float]]) -> Measured:
    measured = Measured()
    for name, values in speeds.items():
        for value in values:
            measured.add((name, "mini"), {SPEED: value})
    return measured


def test_ratios_of_training_are_taken_within_a_round() -> None:
    options = squad_training.parse(["--sizes", "mini", "--competitors", OURS, "hf-pytorch", "--rounds", "3"])
    text = "\n".join(squad_training.report(measured_of({OURS: [30, 10, 40], "hf-pytorch": [10, 5, 10]}), options))
    assert "30.00 (10.00–40.00)" in text
    assert "3.00 × (2.00–4.00)" in text


def test_packed_windows_are_compared_where_windows_are_real() -> None:
    assert squad_training.PACKED not in squad_training.parse([]).competitors
    options = squad_training.parse(["--sizes", "mini", "--windows", REAL])
    speeds = {name: [float(place + 1)] for place, name in enumerate(options.competitors)}
    assert options.competitors[:3] == [OURS, squad_training.PACKED, "hf-tensorflow"]
    assert "0.67 ×" in "\n".join(squad_training.report(measured_of(speeds), options))  # 2 / 3, and not 1 / 3


def test_real_windows_hold_every_question_and_its_answer() -> None:
    document = json.loads(real_data("squad", "train-v1.1-prefix.json").read_text(encoding="utf-8"))
    questions = sum(len(p["qas"]) for article in document["data"] for p in article["paragraphs"])
    windows = squad_windows(REAL, real_data_root())
    answered = windows["start_positions"][:, 0] > 0
    assert questions <= len(answered) < 1.1 * questions
    assert answered.sum() >= questions
    assert (windows["segment_ids"][answered, windows["start_positions"][answered, 0]] == 1).all()


def test_real_windows_need_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--windows", REAL, "--data", str(tmp_path), "--competitors", OURS]
    assert squad_training.main(arguments) == 2
    assert "BERT_REAL_DATA" in capsys.readouterr().err
