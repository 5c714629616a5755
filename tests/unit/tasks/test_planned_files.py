"""A plan reads the files of a fine-tuning, and refuses what the run would refuse, by the same line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.cli import main

CONFIG = ["--config", "configs/fine_tuning.json", "--bert-model-name", "bert-base-uncased"]
WRONG_START = {"text": "a", "answer_start": "x"}
QUESTION = {"id": "1", "question": "q", "answers": [WRONG_START]}
SQUAD = {"data": [{"title": "t", "paragraphs": [{"context": "a", "qas": [QUESTION]}]}]}
OWN_FILES = ["--classification-data.train-file", "train.csv", "--classification-data.text", "text"]


@pytest.mark.parametrize(
    ("task", "files", "flags", "error"),
    [
        ("squad", {"train-v1.1.json": json.dumps(SQUAD)}, [], "train-v1.1.json: data[0]"),
        ("token_classification", {"train.txt": "a O\nb\n", "valid.txt": "a O\n"}, [], "train.txt: line 2"),
        ("classification", {"train.csv": "text,label\na,1\nb,0\nc,\n"}, OWN_FILES, "train.csv: line 4"),
    ],
)
@pytest.mark.parametrize("plan", [["--plan"], ["--plan", "all"]])
def test_a_broken_file_is_refused_by_the_plan(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    task: str,
    files: dict[str, str],
    flags: list[str],
    error: str,
    plan: list[str],
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content, "utf-8")
    arguments = [*CONFIG, "--dataset-dir", str(tmp_path), *flags, *plan]
    assert main(task, pytest.fail, arguments) == 2
    printed = capsys.readouterr()
    assert error in printed.err and printed.err.count("\n") == 1 and not printed.out
