"""Fine-tuning through ``run_seq_classification.py``: from a benchmark's files to scores and submissions."""

from __future__ import annotations

import functools
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints.export.__main__ import main as export
from checkpoints.writer import rewrite_description
from data_utils.tokenizer import SPECIAL_TOKENS
from tasks.classify import main as classify
from tests import ROOT
from tests.support.fine_tuning_runs import (
    PIECES,
    write_mnli,
    write_own_labels,
    write_own_numbers,
    write_own_pairs,
    write_pieces,
    write_sst2,
)
from tests.support.fine_tuning_runs import write_config as write_any_config
from tests.support.html_pages import read_page
from tests.support.runs import (
    evaluations,
    last_checkpoint,
    metrics,
    read_csv,
    read_json,
    read_lines,
    run_command,
)
from training.evaluation import Record, find_best_step

pytestmark = pytest.mark.slow

PACKED = ["--packing.max-sequences-per-pack", "3"]

run = functools.partial(run_command, "classification", status=0)


def write_config(root: Path, task: str, **changes: Any) -> Path:
    return write_any_config(root, task, **{"glue_task": task, "num_epochs": 5, **changes})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("classification")
    write_pieces(root / "vocab.txt", PIECES)
    return root


@pytest.fixture(scope="module")
def secret(root: Path) -> list[int]:
    return write_sst2(root)


@pytest.fixture(scope="module")
def printed(root: Path, secret: list[int]) -> str:
    """The command's output, with predictions for the test data."""
    ended = run(write_config(root, "sst2"), "--seed", "3", "--do-test", "yes")
    return ended.output + ended.errors


def scores(folder: Path) -> dict[str, float]:
    return read_json(folder / "scores.json")


def test_a_recipe_takes_the_sizes_of_the_weights(root: Path, printed: str) -> None:
    recipe = ROOT / "configs" / "glue" / "glue_base_checkpoint_path.json"  # 12 layers × 768, 30,400 rows
    weights = root / "runs" / "sst2"
    own = {"extends": [str(recipe), str(ROOT / "configs" / "systems" / "glue_cpu.json")]}
    config = write_config(root, "recipe", glue_task="sst2", **own, pretrained_ckpt_path=str(weights))
    values = read_json(config)
    del values["bert_config"]
    config.write_text(json.dumps({**values, "num_epochs": 2, "vocab_file": None}), encoding="utf-8")
    run(config)
    folder = root / "runs" / "recipe"
    resolved = read_json(folder / "resolved_config.json")["config"]["bert_config"]
    assert (resolved["num_hidden_layers"], resolved["hidden_size"], resolved["vocab_size"]) == (2, 32, 40)
    assert read_json(last_checkpoint(folder) / "checkpoint.json")["architecture"]["vocab_size"] == 40
    assert scores(folder)["accuracy"] > 0.9


def test_scores_are_printed_with_those_of_the_most_frequent_class(root: Path, printed: str) -> None:
    lines = (root / "SST-2" / "dev.tsv").read_text(encoding="utf-8").splitlines()[1:]
    positive = sum(line.endswith("1") for line in lines) / len(lines)
    result, frequent = scores(root / "runs" / "sst2"), max(positive, 1 - positive)
    assert set(result) == {"accuracy"} and result["accuracy"] > 0.9  # the more frequent class has about 0.5
    assert " INFO accuracy: " in printed and f"accuracy: {result['accuracy']:.4f}" in printed
    assert f"the most frequent class: accuracy {frequent:.4f}" in printed
    assert "uniform baseline, ln(2)" in printed
    assert read_json(root / "runs" / "sst2" / "baseline.json") == {"accuracy": pytest.approx(frequent)}


def test_the_log_begins_with_what_matters_and_ends_with_the_next_command(
    root: Path, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = (root / "runs" / "sst2" / "train.log").read_text(encoding="utf-8").splitlines()
    updates = metrics(root / "runs" / "sst2")[-1]["total_steps"]
    head = "\n".join(log[:3])
    for text in (
        "float32",
        "240 samples (41 more are held out)",
        f"{updates:,} updates",
        "global batch 8, 5.00 epochs",
    ):
        assert text in head
    assert not [line for line in log if "WARNING" in line]
    _, command = log[-1].split("next: ")
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "tasks.classify"] and classify(words[3:]) == 0
    assert "%" in capsys.readouterr().out


def test_the_submission_has_the_leaderboards_format(root: Path, printed: str, secret: list[int]) -> None:
    path = root / "runs" / "sst2" / "submission" / "SST-2.tsv"
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    assert header == "index\tprediction"
    rows = [line.split("\t") for line in lines]
    assert [row[0] for row in rows] == [str(number) for number in range(len(secret))]
    right = sum(int(row[1]) == label for row, label in zip(rows, secret))
    assert right >= 0.9 * len(secret)


def test_an_evaluation_on_packs_gives_the_same_predictions(root: Path, printed: str) -> None:
    trained = root / "runs" / "sst2"
    flags = ["--do-training", "false", "--do-test", "yes", "--pretrained-ckpt-path", str(trained)]
    run(root / "sst2.json", *flags, *PACKED, "--name", "evaluation")
    folder = root / "runs" / "evaluation"
    assert scores(folder) == scores(trained)
    assert not (folder / "checkpoints").exists()
    submissions = [(one / "submission" / "SST-2.tsv").read_bytes() for one in (folder, trained)]
    assert submissions[0] == submissions[1]


def test_a_sentence_from_the_command_line(root: Path, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = ["--checkpoint", str(root / "runs" / "sst2")]
    for text, label in (("the film was lovely", "positive"), ("it is a dull story", "negative")):
        assert classify([*checkpoint, text]) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert lines[0][0] == label and sorted(line[0] for line in lines) == ["negative", "positive"]
        shares = [float(line[1].rstrip("%")) for line in lines]
        assert shares[0] > 80 and sum(shares) == pytest.approx(100, abs=0.02)
    assert classify([*checkpoint, "one", "two"]) == 2
    assert "sst2 takes 1 text, not 2" in capsys.readouterr().err
    unknown = Path(shutil.copytree(last_checkpoint(Path(checkpoint[1])), root / "unknown"))
    rewrite_description(unknown, {"task": "jokes"})
    assert classify(["--checkpoint", str(unknown), "one"]) == 2
    assert "was trained for jokes, which is not a task of this program" in capsys.readouterr().err


def test_both_validation_sets_of_mnli(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_mnli(root)
    run(write_config(root, "mnli"))
    result = scores(root / "runs" / "mnli")
    assert list(result) == ["accuracy_matched", "accuracy_mismatched"]
    assert result["accuracy_matched"] > 0.9
    assert result["accuracy_mismatched"] < 0.1  # its words mean other labels than in training
    for score, mistakes in zip(result.values(), read_json(root / "runs" / "mnli" / "mistakes.json"), strict=True):
        confusions = np.array([row[1:] for row in mistakes["rows"]])
        assert np.trace(confusions) / confusions.sum() == pytest.approx(score)
    assert "What went wrong" in read_page(root / "runs" / "mnli").texts
    assert classify(["--checkpoint", str(root / "runs" / "mnli"), "the film is a story", "bad story"]) == 0
    assert capsys.readouterr().out.startswith("contradiction")


def test_a_task_of_clue(root: Path) -> None:
    """The task has Chinese text, 15 classes, and submissions for both test sets of TNEWS."""
    words = {"103": "球", "104": "股", "110": "军"}
    write_pieces(root / "zh.txt", [*SPECIAL_TOKENS, *words.values(), "新", "闻"])
    folder = root / "clue" / "tnews_public"
    folder.mkdir(parents=True)

    def write(name: str, count: int, labelled: bool) -> list[str]:
        labels = [list(words)[number % 3] for number in range(count)]
        rows = [{"id": n, "sentence": f"新闻{words[label]}", "label": label} for n, label in enumerate(labels)]
        bare = [{key: value for key, value in row.items() if labelled or key != "label"} for row in rows]
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in bare), encoding="utf-8")
        return labels

    write("train.json", 120, True)
    write("dev.json", 12, True)
    secret = {"tnews11": write("test.json", 7, False), "tnews10": write("test1.0.json", 5, False)}
    changes = {"dataset_dir": str(root / "clue"), "vocab_file": str(root / "zh.txt"), "num_epochs": 20}
    run(write_config(root, "tnews", **changes), "--do-test")
    folder = root / "runs" / "tnews"
    assert scores(folder) == {"accuracy": 1.0}
    for name, labels in secret.items():
        submission = read_lines(folder / "submission" / f"{name}_predict.json")
        assert submission == [{"id": n, "label": label} for n, label in enumerate(labels)]


def test_own_pairs_from_csv_to_a_classified_sentence(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hidden = write_own_pairs(root)
    files = {"train_file": "own.csv", "test_file": "new.csv", "text": ["the film", "what of it"], "label": "mood"}
    config = write_config(root, "own", glue_task=None, classification_data=files, num_epochs=8)
    ended = run(config, "--do-test", "--seed", "3", *PACKED)
    folder = root / "runs" / "own"
    result = scores(folder)
    assert list(result) == ["accuracy", "macro_f1", "matthews"] and min(result.values()) > 0.9
    assert "validation on 23 samples of" in ended.errors and "submission/predictions.csv" in ended.errors
    rows = read_csv(folder / "submission" / "predictions.csv")
    assert rows == [{"id": f"{n:04}", "mood": mood} for n, mood in enumerate(hidden)]
    assert read_json(folder / "dataset.json")["classes"].keys() == {"cold", "hot", "so, so"}

    export(["--checkpoint", str(folder), "--output", str(root / "exported-own")])
    names = {"0": "cold", "1": "hot", "2": "so, so"}
    assert read_json(root / "exported-own" / "config.json")["id2label"] == names
    capsys.readouterr()
    said = []
    for checkpoint in (folder, root / "exported-own"):
        assert classify(["--checkpoint", str(checkpoint), "--max-seq-length", "16", "the film", "good story"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and said[0].startswith("hot ")
    assert classify(["--checkpoint", str(folder), "the film"]) == 2
    assert "own takes 2 texts, not 1" in capsys.readouterr().err
    files = ["--file", str(root / "new.csv"), "--output", str(root / "out.csv")]
    assert classify(["--checkpoint", str(folder), *files]) == 0
    assert [row["prediction"] for row in read_csv(root / "out.csv")] == hidden  # with the columns of the training

    again = ["--do-training", "false", "--pretrained-ckpt-path", str(root / "exported-own"), "--name", "again"]
    run(config, *again, "--classification-data.classes", '["so, so", "hot", "cold"]')
    assert scores(root / "runs" / "again") == pytest.approx(result)  # outputs are matched by their names


def test_pairs_are_refused_for_weights_of_one_segment(root: Path) -> None:
    write_own_pairs(root)
    files = {"train_file": "own.csv", "text": ["the film", "what of it"], "label": "mood"}
    config = write_config(root, "one-segment", glue_task=None, classification_data=files)
    refused = run(config, "--bert-config.type-vocab-size", "1", status=2)
    assert "type_vocab_size is 1" in refused.error


def test_any_number_of_labels(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hidden = write_own_labels(root)
    section = {"train_file": "labels.csv", "test_file": "new_labels.csv", "label": "moods", "label_separator": "|"}
    changes = {"glue_task": None, "classification_data": section, "num_epochs": 25, "evaluation": {"every": 60}}
    ended = run(write_config(root, "moods", **changes), "--do-test", *PACKED)
    folder = root / "runs" / "moods"
    result = scores(folder)
    assert list(result) == ["micro_f1", "macro_f1"] and min(result.values()) > 0.95
    best = find_best_step([Record(step, one["micro_f1"]) for step, one in evaluations(folder)], "micro_f1")
    assert result == dict(evaluations(folder))[best]
    assert "uniform baseline, ln(2)" in ended.output + ended.errors
    last = [line for line in metrics(folder) if "metrics" in line][-1]
    assert 1.2 < last["metrics"]["sequences_per_pack"] <= 3
    assert last["samples"] == pytest.approx(25 * 227, rel=0.05)  # samples, not packs
    assert [row["moods"] for row in read_csv(folder / "submission" / "predictions.csv")] == hidden

    export(["--checkpoint", str(folder), "--output", str(root / "exported-moods")])
    assert read_json(root / "exported-moods" / "config.json")["problem_type"] == "multi_label_classification"
    written = []
    for number, checkpoint in enumerate((folder, root / "exported-moods")):
        table = ["--file", str(root / "new_labels.csv"), "--output", str(root / f"moods-{number}.csv")]
        assert classify(["--checkpoint", str(checkpoint), "--max-seq-length", "16", *table]) == 0
        written.append(read_csv(root / f"moods-{number}.csv"))
    assert [row["prediction"] for row in written[0]] == hidden
    assert [row["prediction"].replace(";", "|") for row in written[1]] == hidden  # its config has no separator
    shares = [[(row["probability_dark"], row["probability_kind"]) for row in rows] for rows in written]
    assert shares[0] == shares[1]


def test_own_numbers(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_own_numbers(root)
    section = {"train_file": "own.jsonl", "label": "stars", "regression": True}
    run(write_config(root, "stars", glue_task=None, classification_data=section, num_epochs=8))
    folder = root / "runs" / "stars"
    result = scores(folder)
    assert list(result) == ["pearson", "spearman"] and min(result.values()) > 0.9
    assert classify(["--checkpoint", str(folder), "good good good good good"]) == 0
    assert float(capsys.readouterr().out) > 1
