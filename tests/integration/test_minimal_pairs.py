"""Pseudo-log-likelihoods of minimal pairs against a plain loop in PyTorch, results against Python's statistics."""

from __future__ import annotations

import csv
import json
import math
import shutil
import statistics
from pathlib import Path

import numpy as np
import pytest

from benchmarks.masked_pieces import MaskedPieces
from benchmarks.minimal_pairs import by_group, main, pair_scores, summarize
from benchmarks.pair_files import Pair, read_pairs
from checkpoints.export.hf_folder import export
from data_utils.records.features import TARGETS, TOKEN_POSITIONS, Feature, fine_tuning_features
from model.tasks import CLASSIFICATION, PRETRAINING
from tests.support.pytorch_masked_words import pytorch_scores
from tests.support.pytorch_process import NEEDS_PYTORCH
from tests.support.real_data import real_data
from tests.support.saved_checkpoints import OPTIONS, save

pytestmark = pytest.mark.slow

POSITIONS = 26  # not a multiple of 8


def words(count: int, first: int) -> str:
    return " ".join(f"W{(first + 7 * number) % 110}" for number in range(count))


def pairs(*lengths: tuple[int, int]) -> list[Pair]:
    lengths = lengths or ((1, 2), (6, 7), (6, 6), (14, 15), (24, 9), (5, 13), (3, 8))
    return [Pair(words(good, n), words(bad, n + 1), "p", "f", "") for n, (good, bad) in enumerate(lengths)]


def write_jsonl(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of a run as the published configs have it, its exports, and a fine-tuned run."""
    root = tmp_path_factory.mktemp("models")
    runs = {"run": PRETRAINING, "fine-tuned": CLASSIFICATION}
    for name, task in runs.items():
        options = {**OPTIONS["as published"], "max_position_embeddings": POSITIONS}
        save(task, options, root / name / "checkpoints", pieces=120)
    export(str(root / "run"), root / "exported")
    export(str(root / "run"), root / "encoder", encoder_only=True)
    return {name: root / name for name in (*runs, "exported", "encoder")}


@NEEDS_PYTORCH
def test_pseudo_log_likelihoods_are_those_of_a_plain_loop_in_pytorch(models, tmp_path, caplog):
    texts = [text for pair in pairs() for text in (pair.good, pair.bad)]
    other = tmp_path / "masked-lm"
    expected = np.reshape(pytorch_scores("BertForPreTraining", models["exported"], texts, other), (-1, 2))
    (other / "vocab.txt").unlink(missing_ok=True)  # leaves tokenizer.json
    for folder, some in ((models["exported"], pairs()), (models["run"], pairs()[:3]), (other, pairs()[:3])):
        np.testing.assert_allclose(pair_scores(some, str(folder)), expected[: len(some)], rtol=0, atol=1e-4)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]  # the pooler is not needed


def test_each_piece_is_masked_alone():
    random = np.random.default_rng(0)
    sentences = [random.integers(5, 120, length).tolist() for length in random.integers(1, 41, 150)]
    padding, first, last, mask = 0, 2, 3, 4
    masked = Feature("masked_lm_positions", 1, TOKEN_POSITIONS, 42), Feature("masked_lm_ids", 1, TARGETS, 120)
    reader = MaskedPieces(fine_tuning_features(42, 120, *masked), (padding, first, last, mask), sentences)
    rows = reader.read(np.arange(reader.count))
    ids, positions, pieces = (rows[name] for name in ("input_ids", "masked_lm_positions", "masked_lm_ids"))
    assert ((ids == mask).sum(1) == 1).all() and (np.take_along_axis(ids, positions, 1) == mask).all()
    assert (ids[:, 0] == first).all() and ((ids == last).sum(1) == 1).all()
    np.testing.assert_array_equal(rows["input_mask"], ids != padding)
    assert [pieces[reader.owners == n, 0].tolist() for n in range(len(sentences))] == sentences


def test_accuracies_and_standard_errors():
    differences = np.array([3.0, -1.0, 0.0, 0.5, 2.0, 0.0, -4.0])
    outcomes = [1, 0, 0.5, 1, 1, 0.5, 0]
    error = statistics.pstdev(outcomes) / math.sqrt(len(outcomes))
    assert summarize(differences) == pytest.approx((7, statistics.mean(outcomes), error, 2))
    share = summarize(np.array([1.0, 1.0, -1.0, 1.0]))
    assert share.standard_error == pytest.approx(math.sqrt(0.75 * 0.25 / 4))  # √(p(1 - p) / n) without ties
    groups = by_group(["b", "a", "", "a", "b", "b", "b"], differences)
    assert [(name, result.pairs) for name, result in groups.items()] == [("a", 2), ("b", 4)]
    assert groups["a"].right == 0.5 and groups["b"].ties == 1


def test_tables_of_a_folder_and_results_as_json(models, tmp_path, capsys):
    data = tmp_path / "data"
    data.mkdir()
    short = pairs((1, 2), (5, 4), (6, 6), (3, 2), (4, 4), (6, 5), (2, 3))  # of one shape
    rows = [{"good": pair.good, "bad": pair.bad, "UID": "order", "field": "syntax"} for pair in short]
    write_jsonl(data / "a.jsonl", *rows)
    with open(data / "b.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["good", "bad"], ["W1 W2", "w1 w2"], ["W3", "w3"], [words(6, 50), words(6, 60)]])
    command = ["--checkpoint", str(models["run"]), "--data", str(data), "--good", "good", "--bad", "bad"]
    assert main([*command, "--output", str(tmp_path / "out.json")]) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    results = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))

    good, bad = pair_scores(short, str(models["run"])).T
    right = float(np.mean(good > bad))
    assert results["paradigm"]["order"]["right"] == results["field"]["syntax"]["right"] == right
    assert list(results["paradigm"]) == ["b", "order"] and list(results["field"]) == ["syntax"]
    assert results["paradigm"]["b"]["ties"] == 2  # an uncased model sees the same word pieces
    everything = results["all"]["all pairs"]
    of_b = results["paradigm"]["b"]["right"]
    assert (everything["pairs"], everything["right"]) == (10, pytest.approx((7 * right + 3 * of_b) / 10))
    assert ["order", "7", f"{right:.1%}"] in [line[:3] for line in printed]
    assert [len(list(read_pairs(data, "good", "bad", limit))) for limit in (2, None)] == [4, 10]


GOOD = {"sentence_good": "W1 W2", "sentence_bad": "W2 W1"}


@pytest.mark.parametrize(
    "rows, message",
    [
        ([GOOD, {"sentence_good": "W1"}], "pairs.jsonl: line 2: sentence_bad is missing (the columns are "),
        (
            [GOOD, {**GOOD, "sentence_good": words(41, 0)}],
            "line 2: the good sentence has 41 word pieces, and the model",
        ),
    ],
)
def test_unusable_pairs_are_refused(rows, message, models, tmp_path, capsys):
    path = write_jsonl(tmp_path / "pairs.jsonl", *rows)
    assert main(["--checkpoint", str(models["run"]), "--data", str(path)]) == 2
    refuses(capsys, message)


def test_unusable_models_and_paths_are_refused(models, tmp_path, capsys):
    def refused(message: str, checkpoint: Path, data: Path, *more: str) -> None:
        assert main(["--checkpoint", str(checkpoint), "--data", str(data), *more]) == 2
        refuses(capsys, message)

    data = write_jsonl(tmp_path / "pairs.jsonl", GOOD)
    for name in ("fine-tuned", "encoder"):
        refused("has no masked-LM head (cls.predictions.bias is missing); name a run of", models[name], data)
    refused("is not a file, nor a folder with files that end with .csv", models["run"], tmp_path / "absent")
    refused("--output: ", models["run"], data, "--output", str(tmp_path))
    shutil.copytree(models["exported"], tmp_path / "no words", ignore=shutil.ignore_patterns("vocab.txt", "token*"))
    refused("has no vocab.txt and no tokenizer.json; set vocab_file", tmp_path / "no words", data)


def refuses(capsys: pytest.CaptureFixture[str], message: str) -> None:
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and message in captured.err, captured.err


def test_blimp_is_read():
    pairs = list(read_pairs(real_data("blimp"), "sentence_good", "sentence_bad"))
    assert len(pairs) == 33_500 and len({pair.paradigm for pair in pairs}) == 67
    assert {"morphology", "semantics", "syntax"} < {pair.field for pair in pairs}
