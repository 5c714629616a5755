"""The benchmarks of fine-tuning compute and report what they say; how fast anything is, no test can tell."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import fine_tuning_speed, squad_features
from benchmarks.fine_tuning_speed import OURS, SPEED, TASKS
from benchmarks.measuring import Measured
from benchmarks.samples import batches_of, unpadded
from tests.support.real_data import real_data, real_data_root
from tests.support.squad_files import random_document, write_vocabulary


def test_features_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vocabulary, data = write_vocabulary(tmp_path).path, tmp_path / "train.json"
    data.write_text(json.dumps(random_document(3)), encoding="utf-8")
    arguments = ["--data", str(data), "--vocab-file", str(vocabulary), "--rounds", "1", "--questions", "4"]
    assert squad_features.main(arguments) == 0
    output = capsys.readouterr().out
    rows = [line.split("|") for line in output.splitlines() if line.startswith("|")]
    assert rows[0][1].strip() == "4 questions"
    assert [int(row[2]) for row in rows[2:5]] == [4, 4, 4]  # all contexts are shorter than a window
    assert "speed over HF fast tokenizer" in output and "reached" in output


def test_features_need_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert squad_features.main(["--data", str(tmp_path / "absent.json")]) == 2
    error = capsys.readouterr().err
    assert "absent.json does not exist" in error and error.count("\n") == 1


def test_ratios_are_to_each_competitor_and_to_the_best_within_a_round() -> None:
    arguments = ["--tasks", "squad", "--sizes", "mini", "--competitors", OURS, "pytorch", "pytorch-bfloat16"]
    options = fine_tuning_speed.main.parser.parse_args(arguments)
    measured = Measured()
    for name, speeds in {OURS: [30, 10, 40], "pytorch": [10, 5, 10], "pytorch-bfloat16": [5, 10, 20]}.items():
        for speed in speeds:
            measured.add((name, "squad, mini"), {SPEED: speed})
    text = "\n".join(fine_tuning_speed.report(measured, options))
    assert "30.00 (10.00–40.00)" in text
    assert "3.00 × (2.00–4.00)" in text
    assert "squad, mini: speed over the best of PyTorch | at least 1.50 × | 2.00 × | reached" in " ".join(text.split())


def test_batches_are_as_long_as_their_longest_sample() -> None:
    mask = (np.arange(6) < np.array([[2], [4], [3]])).astype(np.int32)
    samples = {"input_ids": mask * 7, "input_mask": mask, "segment_ids": mask * 0, "labels": np.array([[1], [0], [1]])}
    batches = batches_of(samples, 2, unpadded)
    first, second = next(batches), next(batches)
    assert first["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]] and first["labels"].tolist() == [1, 0]
    assert second["input_ids"].tolist() == [[7, 7, 7], [7, 7, 0]] and second["labels"].tolist() == [1, 1]


def test_real_windows_hold_every_question_and_its_answer() -> None:
    document = json.loads(real_data("squad", "train-v1.1-prefix.json").read_text(encoding="utf-8"))
    questions = sum(len(p["qas"]) for article in document["data"] for p in article["paragraphs"])
    windows = TASKS["squad"].samples(real_data_root())
    answered = windows["start_positions"][:, 0] > 0
    assert questions <= len(answered) < 1.1 * questions
    assert answered.sum() >= questions
    assert (windows["segment_ids"][answered, windows["start_positions"][answered, 0]] == 1).all()


def test_real_samples_need_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fine_tuning_speed.main(["--data", str(tmp_path), "--competitors", OURS]) == 2
    assert "BERT_REAL_DATA" in capsys.readouterr().err
