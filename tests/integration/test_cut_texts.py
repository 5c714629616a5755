"""What a training and its evaluation cut is counted in one line each, as the words in the files are counted here."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.fine_tuning_runs import FILLING, PIECES, write_config, write_pieces
from tests.support.runs import run_command, write_csv, write_json

LENGTH = 16
SHORT: dict[str, Any] = {"max_seq_length": LENGTH, "num_epochs": 1}


def words(count: int) -> str:
    return " ".join(random.Random(count).choices(FILLING, k=count))


def cut_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage() for record in caplog.records if record.levelname == "WARNING" and "cut" in record.message
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_pieces(tmp_path / "vocab.txt", PIECES)
    return tmp_path


def test_classification(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    counts = {"train": [3, 14, 15, 30] * 4, "valid": [14, 20, 40]}
    for name, sizes in counts.items():
        rows = [[words(size), "ab"[number % 2]] for number, size in enumerate(sizes)]
        write_csv(root / f"{name}.csv", ["text", "label"], rows)
    data = {"train_file": "train.csv", "validation_file": "valid.csv"}
    run_command("classification", write_config(root, "own", **SHORT, classification_data=data), status=0)
    assert cut_lines(caplog) == [
        f"{root}/train.csv: 8 of 16 samples (50.0%) are longer than max_seq_length {LENGTH} and cut",
        f"{root}/valid.csv: 2 of 3 samples (66.7%) are longer than max_seq_length {LENGTH} and cut",
    ]


def test_sentence_embedding(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The texts of a sample share the tokens in training; each text is embedded alone in the evaluation."""
    for name, pairs in {"train": [(6, 6), (6, 7), (30, 2)] * 4, "valid": [(14, 15), (3, 40), (5, 5)]}.items():
        write_csv(root / f"{name}.csv", ["a", "b"], [[words(first), words(second)] for first, second in pairs])
    data = {"train_file": "train.csv", "validation_file": "valid.csv", "text": ["a", "b"]}
    run_command("sentence_embedding", write_config(root, "own", **SHORT, embedding=data), status=0)
    assert cut_lines(caplog) == [
        f"{root}/train.csv: 8 of 12 samples (66.7%) are longer than max_seq_length {LENGTH} and cut",
        f"{root}/valid.csv: 2 of 5 samples (40.0%) are longer than max_seq_length {LENGTH} and cut",
    ]


def test_entities(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, sizes in {"train": [3, 14, 20] * 4, "valid": [5, 18]}.items():
        lines = [
            f"{word} {'B-PER' if word == 'film' else 'O'}" for size in sizes for word in [*words(size).split(), ""]
        ]
        text = "\n".join("" if line.startswith(" ") else line for line in lines)
        (root / f"{name}.txt").write_text(f"film B-PER\n\n{text}\n", encoding="utf-8")
    run_command("token_classification", write_config(root, "own", **SHORT), status=0)
    assert cut_lines(caplog) == [
        f"{root}/train.txt: 4 of 13 samples (30.8%) are longer than max_seq_length {LENGTH} and cut; 24 words are lost",
        f"{root}/valid.txt: 1 of 3 samples (33.3%) is longer than max_seq_length {LENGTH} and cut; 4 words are lost",
    ]


def test_questions(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Contexts are read in windows, so nothing of them is cut."""
    for name, sizes in {"train": [3, 4, 5, 9] * 2, "dev": [4, 6]}.items():
        context = f"{words(40)} great"
        answer = {"text": "great", "answer_start": context.index("great")}
        asked = [
            {"id": f"{name}{number}", "question": words(size), "answers": [answer]} for number, size in enumerate(sizes)
        ]
        article = {"title": "t", "paragraphs": [{"context": context, "qas": asked}]}
        write_json(root / f"{name}-v1.1.json", {"version": "1.1", "data": [article]})
    changes = {**SHORT, "squad": {"max_query_length": 4, "doc_stride": 4}}
    run_command("squad", write_config(root, "own", **changes), status=0)
    assert cut_lines(caplog) == [
        f"{root}/train-v1.1.json: 4 questions are longer than 4 pieces (squad.max_query_length) and cut",
        f"{root}/dev-v1.1.json: 1 question is longer than 4 pieces (squad.max_query_length) and cut",
    ]
