"""Rows that nobody has set are as long as the data need, by Hugging Face's tokenizer, and shared if that pays."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import BertTokenizerFast

from settings.loading import LoadedConfig
from tasks.cli import main
from tasks.fitted_rows import fitted, fitting_length, fitting_packs
from tasks.user_data import read_classes
from tests.support.config_files import load_config
from tests.support.fine_tuning_runs import PIECES, write_pieces

TEXTS = ["good film", "an unknown, very dull story", "a", "the film is fine " * 4, "it was great"] * 8
RECIPE = ["--config", "configs/fine_tuning.json", "--bert-model-name", "bert-base-uncased"]
OWN = ["--classification-data.text", "text", "--classification-data.label", "label"]


@pytest.fixture
def own(tmp_path: Path) -> list[str]:
    rows = [json.dumps({"text": text, "label": "ab"[number % 2]}) for number, text in enumerate(TEXTS)]
    (tmp_path / "train.jsonl").write_text("".join(f"{row}\n" for row in rows), "utf-8")
    vocabulary = write_pieces(tmp_path / "vocab.txt", PIECES)
    files = ["--classification-data.train-file", str(tmp_path / "train.jsonl"), "--vocab-file", str(vocabulary)]
    return [*OWN, *files, "--output-dir", str(tmp_path / "runs")]


def loaded(flags: list[str], task: str = "classification") -> LoadedConfig:
    return fitted(load_config(task, [*RECIPE, *flags], read_classes), fetch=False)


def longest(folder: Path) -> int:
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=True)
    return max(len(ids) for ids in tokenizer(TEXTS)["input_ids"])


def rows_of(result: LoadedConfig) -> tuple[int, Any, int, bool]:
    config = result.config
    packs = config.packing
    return config.max_seq_length, packs.max_sequences_per_pack, config.global_batch.micro_batch_size, packs.adjust_betas


def test_the_longest_sample_decides(own: list[str], tmp_path: Path) -> None:
    result = loaded([*own, "--packing.max-sequences-per-pack", "none"])
    assert rows_of(result) == (24, None, 32, True)
    result = loaded(own)
    most = longest(tmp_path)
    assert most == 18 and rows_of(result)[0] == 24
    assert result.rows.startswith(f"24 tokens for the longest of 40 samples, {most}; none is cut")
    assert result.origins["max_seq_length"] == "data"


def test_packs_keep_the_samples_of_an_update(own: list[str]) -> None:
    """Lengths are 4, 7 or more, 3, 18 and 5 tokens; a row of 24 has the long one alone with a short one or two."""
    length, sequences, packs, adjusts = rows_of(loaded(own))
    assert (length, sequences is not None, adjusts) == (24, True, False)
    tokens = sum(2 + len(text.replace(",", " ,").split()) for text in TEXTS)
    factor = len(TEXTS) / np.ceil(tokens / length)  # no plan has fewer packs
    assert factor >= 2 and packs >= 32 / factor * 0.9


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--max-seq-length", "64"], (64, None, 32, True)),
        (["--packing.max-sequences-per-pack", "6"], (128, 6, 32, True)),
        (["--optimizer-opts.learning-rate.schedule-name", "up_down"], (512, None, 32, True)),
        (["--generated-dataset", "true"], (128, None, 32, True)),
        (["--execution.platform", "graphcore"], (128, None, 32, True)),
        (["--optimizer-opts.learning-rate.reference-global-batch", "32"], (24, None, 32, True)),
    ],
)
def test_what_is_set_or_published_stays(own: list[str], flags: list[str], expected: tuple[object, ...]) -> None:
    assert rows_of(loaded([*own, *flags])) == expected


def test_the_length_of_windows_of_squad_stays(tmp_path: Path) -> None:
    assert loaded(["--dataset-dir", str(tmp_path)], "squad").config.max_seq_length == 128


@pytest.mark.parametrize("task", ["token_classification", "sentence_embedding"])
def test_words_and_pairs(tmp_path: Path, task: str) -> None:
    """Sentences have two special tokens; a pair of texts to embed has four, and its texts share a row."""
    vocabulary = ["--vocab-file", str(write_pieces(tmp_path / "vocab.txt", PIECES))]
    if task == "token_classification":
        sentences = [["good", "film"], ["a", "story", "is", "fine"] * 5]
        for name in ("train.txt", "valid.txt"):
            text = "".join(
                "".join(f"{word} {'B-X' if word == 'film' else 'O'}\n" for word in words) + "\n" for words in sentences
            )
            (tmp_path / name).write_text(text, "utf-8")
        result = loaded([*vocabulary, "--dataset-dir", str(tmp_path)], task)
        assert result.config.max_seq_length == 24  # 20 words and 2
        return
    rows = [{"a": "good film", "b": "a story is fine " * 3}] * 40
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    files = ["--embedding.train-file", str(tmp_path / "pairs.jsonl"), "--embedding.text", "a", "b"]
    result = loaded([*vocabulary, *files], task)
    assert rows_of(result) == (24, None, 32, True)  # 2 + 12 words and 4


def test_the_plan_shows_the_rows(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main("classification", [*RECIPE, *own, "--plan"], pytest.fail) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("rows "))
    assert "24 tokens for the longest of 40 samples, 18; none is cut; up to" in line


@pytest.mark.parametrize("flags", [["--max-seq-length", "64"], ["--packing.max-sequences-per-pack", "none"]])
def test_the_plan_counts_samples_of_rows_that_are_set(
    own: list[str], capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    """Of two classes with 20 texts each, a tenth is held out; 36 texts, 4 passes, whole updates of 32."""
    assert main("classification", [*RECIPE, *own, *flags, "--plan"], pytest.fail) == 0
    rows = dict(re.findall(r"^  (.*?)  +(.*)$", capsys.readouterr().out, re.MULTILINE))
    assert (rows["records in the data set"], rows["samples to train on"]) == ("36", "144")
    assert rows["steps"] == "4 weight updates"


@pytest.mark.parametrize(
    ("lengths", "positions", "expected"),
    [
        ([5, 19, 21], 512, (24, "24 tokens for the longest of 3 samples, 21; none is cut")),
        ([8, 3], 512, (8, "8 tokens for the longest of 2 samples, 8; none is cut")),
        ([600, 700, 20, 20], 510, (510, "510 tokens for the longest of 4 samples, 700; 2 (50.0%) are cut")),
    ],
)
def test_lengths(lengths: list[int], positions: int, expected: tuple[int, str]) -> None:
    assert fitting_length(np.array(lengths), positions) == expected


@pytest.mark.parametrize(
    ("lengths", "length", "batch", "expected"),
    [
        ([10] * 80, 40, 32, (4, 8, 4.0)),  # four in a row, 8 of which are 32 samples
        ([10] * 80, 64, 4, (4, 1, 4.0)),  # six would fit, but one row of six is not near four samples
        ([10] * 80, 16, 32, None),  # no two fit
        ([30] * 50 + [10] * 50, 40, 32, (2, 16, 2.0)),
        ([39] * 70 + [1] * 30, 40, 32, None),  # 100 samples in 70 rows do not pay
        ([500] + [20] * 499, 512, 32, (18, 2, 500 / 29)),  # one outlier has a row of its own; 25 would fit in one
        ([12] * 200 + [8] * 100 + [64], 64, 16, (5, 3, 301 / 61)),  # full ones: 10.7 % more  # room: planners
    ],
)
def test_packs(lengths: list[int], length: int, batch: int, expected: tuple[float, ...] | None) -> None:
    found = fitting_packs(np.array(lengths), length, batch)
    assert (found if found is None else tuple(found)) == expected
