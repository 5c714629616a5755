"""Fine-tuning through ``run_seq_classification.py``: from a benchmark's files to scores and submissions."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import run_seq_classification
from data_utils.tokenizer import SPECIAL_TOKENS
from tasks.classify import main as classify
from tests import ROOT
from utilities.cli import main

GOOD, BAD = ["good", "great", "fine", "lovely"], ["bad", "awful", "poor", "dull"]
FILLING = ["the", "a", "film", "story", "is", "very", "it", "was"]
PIECES = [*SPECIAL_TOKENS, *GOOD, *BAD, *FILLING]
SEQUENCE = 16


def sentence(chance: random.Random, word: str) -> str:
    """Some words, one of which matters."""
    words = [*chance.choices(FILLING, k=chance.randrange(2, 6)), word]
    chance.shuffle(words)
    return " ".join(words)


def write_sst2(root: Path) -> list[int]:
    """Files of SST-2 in which one word decides; returns the secret labels of the test data."""
    chance = random.Random(0)

    def rows(count: int) -> list[tuple[str, int]]:
        labels = [chance.randrange(2) for _ in range(count)]
        return [(sentence(chance, chance.choice(GOOD if label else BAD)), label) for label in labels]

    folder = root / "SST-2"
    folder.mkdir()
    for name, count in (("train", 240), ("dev", 41)):
        lines = ["sentence\tlabel", *(f"{text}\t{label}" for text, label in rows(count))]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    hidden = rows(19)
    lines = ["index\tsentence", *(f"{number}\t{text}" for number, (text, _) in enumerate(hidden))]
    (folder / "test.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [label for _, label in hidden]


def write_mnli(root: Path) -> None:
    """Files of MNLI in which a word of the second sentence decides; in the mismatched set it tells the opposite."""
    chance = random.Random(1)
    deciding = {"entailment": GOOD[0], "neutral": FILLING[0], "contradiction": BAD[0]}
    header = ["index", "sentence1", "sentence2", "gold_label"]
    folder = root / "MNLI"
    folder.mkdir()
    for name, count in (("train", 240), ("dev_matched", 30), ("dev_mismatched", 33)):
        rows = []
        for number in range(count):
            label = list(deciding)[number % 3]
            word = deciding[label] if name != "dev_mismatched" else deciding[list(deciding)[(number + 1) % 3]]
            rows.append([str(number), sentence(chance, "film"), f"{word} story", label])
        lines = ["\t".join(row) for row in [header, *rows]]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_stsb(root: Path) -> None:
    """Files of STS-B in which the score grows with the number of good words."""
    chance = random.Random(2)
    folder = root / "STS-B"
    folder.mkdir()
    for name, count in (("train", 240), ("dev", 40)):
        lines = ["index\tsentence1\tsentence2\tscore"]
        for number in range(count):
            score = chance.randrange(6)
            words = [*[GOOD[0]] * score, *[BAD[0]] * (5 - score)]
            lines.append(f"{number}\tfilm\t{' '.join(words)}\t{score}.000")
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_config(root: Path, task: str, **changes: Any) -> Path:
    config = {
        "bert_config": {
            "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 64,
            "vocab_size": 40, "max_position_embeddings": 32, "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
        "glue_task": task,
        "dataset_dir": str(root),
        "vocab_file": str(root / "vocab.txt"),
        "output_dir": str(root / "runs"),
        "max_seq_length": SEQUENCE,
        "num_epochs": 5,
        "global_batch": {"micro_batch_size": 8},
        "optimizer_opts": {"name": "AdamW", "learning_rate": {"max_learning_rate": 0.003}},
        "global_batches_per_log": 25,
        "enable_recomputation": False,
        "tensorboard": False,
        "execution": {"xla": False, "platform": "software", "device": "cpu", "precision": "float32"},
        "embedding_serialization_factor": 1,
        **changes,
    }  # fmt: skip
    path = root / f"{task}.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("classification")
    (root / "vocab.txt").write_text("".join(piece + "\n" for piece in PIECES), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def secret(root: Path) -> list[int]:
    return write_sst2(root)


@pytest.fixture(scope="module")
def printed(root: Path, secret: list[int]) -> str:
    """What the command prints for two seeds, with predictions for the test data."""
    command = [sys.executable, "run_seq_classification.py", "--config", str(write_config(root, "sst2"))]
    flags = ["--seeds", "3", "7", "--do-test", "yes"]
    ended = subprocess.run([*command, *flags], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


def scores(run: Path) -> dict[str, float]:
    return json.loads((run / "scores.json").read_text(encoding="utf-8"))


def run_here(config: Path, *flags: str) -> int:
    return main("classification", run_seq_classification.run, ["--config", str(config), *flags])


def test_each_seed_has_a_run_and_all_have_a_summary(root: Path, printed: str) -> None:
    folder = root / "runs" / "sst2"
    found = {seed: scores(folder / f"sst2-seed-{seed}") for seed in (3, 7)}
    for one in found.values():
        assert set(one) == {"accuracy"}
        assert one["accuracy"] > 0.9  # the more frequent class has about 0.5
    summary = json.loads((folder / "seeds.json").read_text(encoding="utf-8"))
    values = [one["accuracy"] for one in found.values()]
    assert summary["mean"]["accuracy"] == pytest.approx(statistics.mean(values))
    assert summary["deviation"]["accuracy"] == pytest.approx(statistics.stdev(values))
    assert summary["seeds"] == {str(seed): one for seed, one in found.items()}
    table = (folder / "seeds.txt").read_text(encoding="utf-8")
    assert [line.split()[0] for line in table.splitlines()] == ["seed", "3", "7", "mean", "deviation"]
    assert all(line in printed for line in table.splitlines())


def test_scores_are_printed_beside_the_majority_class(root: Path, printed: str) -> None:
    lines = (root / "SST-2" / "dev.tsv").read_text(encoding="utf-8").splitlines()[1:]
    positive = sum(line.endswith("1") for line in lines) / len(lines)
    assert f"the most frequent class: accuracy {max(positive, 1 - positive):.4f}" in printed
    assert "\naccuracy: " in printed
    assert "knowing nothing, ln(2)" in printed


def test_the_seeds_make_different_runs(root: Path, printed: str) -> None:
    curves = [
        (root / "runs" / "sst2" / f"sst2-seed-{seed}" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[0]
        for seed in (3, 7)
    ]
    losses = [json.loads(line)["metrics"]["loss"] for line in curves]
    assert losses[0] != losses[1]


def test_the_submission_is_as_the_leaderboard_takes_it(root: Path, printed: str, secret: list[int]) -> None:
    path = root / "runs" / "sst2" / "sst2-seed-3" / "submission" / "SST-2.tsv"
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    assert header == "index\tprediction"
    rows = [line.split("\t") for line in lines]
    assert [row[0] for row in rows] == [str(number) for number in range(len(secret))]
    right = sum(int(row[1]) == label for row, label in zip(rows, secret))
    assert right >= 0.9 * len(secret)


def test_evaluation_alone_gives_the_same_score(root: Path, printed: str) -> None:
    trained = root / "runs" / "sst2" / "sst2-seed-3"
    flags = ["--do-training", "false", "--pretrained-ckpt-path", str(trained), "--name", "evaluation"]
    assert run_here(root / "sst2.json", *flags) == 0
    run = root / "runs" / "evaluation"
    assert scores(run) == scores(trained)
    assert not (run / "checkpoints").exists() and not (run / "submission").exists()


PACKED = ["--packing.max-sequences-per-pack", "3"]


def test_packed_samples_get_the_same_predictions(root: Path, printed: str) -> None:
    trained = root / "runs" / "sst2" / "sst2-seed-3"
    flags = ["--do-training", "false", "--do-test", "yes", "--pretrained-ckpt-path", str(trained)]
    assert run_here(root / "sst2.json", *flags, *PACKED, "--name", "packed-predictions") == 0
    run = root / "runs" / "packed-predictions"
    assert scores(run) == scores(trained)
    submissions = [(folder / "submission" / "SST-2.tsv").read_bytes() for folder in (run, trained)]
    assert submissions[0] == submissions[1]


def test_training_on_packed_samples_learns_too(root: Path, printed: str) -> None:
    flags = [
        "--name",
        "packed",
        "--global-batch.micro-batch-size",
        "4",
        "--global-batch.grad-acc-steps-per-replica",
        "2",
    ]
    assert run_here(root / "sst2.json", *PACKED, *flags) == 0
    run = root / "runs" / "packed"
    assert scores(run)["accuracy"] > 0.9
    last = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert 1.2 < last["metrics"]["sequences_per_pack"] <= 3
    assert last["samples"] == pytest.approx(5 * 240, rel=0.05)  # samples, not packs


def test_a_sentence_from_the_command_line(root: Path, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = ["--checkpoint", str(root / "runs" / "sst2" / "sst2-seed-3")]
    for text, label in (("the film was lovely", "positive"), ("it is a dull story", "negative")):
        assert classify([*checkpoint, text]) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert lines[0][0] == label and sorted(line[0] for line in lines) == ["negative", "positive"]
        shares = [float(line[1].rstrip("%")) for line in lines]
        assert shares[0] > 80 and sum(shares) == pytest.approx(100, abs=0.02)
    assert classify([*checkpoint, "one", "two"]) == 2
    assert "sst2 takes 1 text, not 2" in capsys.readouterr().err


def test_seeds_go_on_where_some_are_missing(root: Path, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = root / "runs" / "sst2"
    before = {seed: (folder / f"sst2-seed-{seed}" / "history.jsonl").read_bytes() for seed in (3, 7)}
    assert run_here(root / "sst2.json", "--resume", "--seeds", "3", "7", "8", "--do-test", "yes") == 0
    assert {seed: (folder / f"sst2-seed-{seed}" / "history.jsonl").read_bytes() for seed in (3, 7)} == before
    summary = json.loads((folder / "seeds.json").read_text(encoding="utf-8"))
    assert list(summary["seeds"]) == ["3", "7", "8"]
    assert "seed 7, 2 of 3, has ended before" in capsys.readouterr().err
    assert run_here(root / "sst2.json", "--resume", "--seeds", "3", "--num-epochs", "6") == 2
    assert "cannot be resumed with another config: num_epochs" in capsys.readouterr().err
    assert run_here(root / "sst2.json", "--name", "nobody", "--resume", "--seeds", "1", "2") == 2
    assert "there is no run" in capsys.readouterr().err


def test_both_validation_sets_of_mnli(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_mnli(root)
    assert run_here(write_config(root, "mnli")) == 0
    found = scores(root / "runs" / "mnli")
    assert list(found) == ["accuracy_matched", "accuracy_mismatched"]
    assert found["accuracy_matched"] > 0.9
    assert found["accuracy_mismatched"] < 0.1  # its words tell another label than in training
    assert classify(["--checkpoint", str(root / "runs" / "mnli"), "the film is a story", "bad story"]) == 0
    assert capsys.readouterr().out.startswith("contradiction")


def test_a_task_of_clue(root: Path) -> None:
    """Chinese text, 15 classes and submissions for both test sets of TNEWS."""
    words = {"103": "球", "104": "股", "110": "军"}
    (root / "zh.txt").write_text("".join(p + "\n" for p in [*SPECIAL_TOKENS, *words.values(), "新", "闻"]), "utf-8")
    folder = root / "clue" / "tnews_public"
    folder.mkdir(parents=True)

    def write(name: str, count: int, labelled: bool) -> list[str]:
        labels = [list(words)[number % 3] for number in range(count)]
        rows = [{"id": n, "sentence": f"新闻{words[label]}", "label": label} for n, label in enumerate(labels)]
        bare = [{key: value for key, value in row.items() if labelled or key != "label"} for row in rows]
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in bare]
        (folder / name).write_text("".join(lines), encoding="utf-8")
        return labels

    write("train.json", 120, True)
    write("dev.json", 12, True)
    secret = {"tnews11": write("test.json", 7, False), "tnews10": write("test1.0.json", 5, False)}
    changes = {"dataset_dir": str(root / "clue"), "vocab_file": str(root / "zh.txt"), "num_epochs": 20}
    assert run_here(write_config(root, "tnews", **changes), "--do-test") == 0
    run = root / "runs" / "tnews"
    assert scores(run) == {"accuracy": 1.0}
    for name, labels in secret.items():
        lines = (run / "submission" / f"{name}_predict.json").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in lines] == [{"id": n, "label": label} for n, label in enumerate(labels)]


def test_regression(root: Path) -> None:
    write_stsb(root)
    assert run_here(write_config(root, "stsb", num_epochs=8)) == 0
    found = scores(root / "runs" / "stsb")
    assert set(found) == {"pearson", "spearman"} and min(found.values()) > 0.8
    facts = json.loads((root / "runs" / "stsb" / "dataset.json").read_text(encoding="utf-8"))
    assert facts["label_variance"] > 1


def test_regression_in_packs(root: Path) -> None:
    config = write_config(root, "stsb", num_epochs=10, max_seq_length=32, global_batch={"micro_batch_size": 4})
    assert run_here(config, *PACKED, "--name", "packed-stsb") == 0
    assert min(scores(root / "runs" / "packed-stsb").values()) > 0.8


def test_broken_data_is_told_before_training(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = root / "broken" / "RTE"
    folder.mkdir(parents=True)
    rows = ["index\tsentence1\tsentence2\tlabel", "0\ta\tfilm\tentailment"]
    (folder / "train.tsv").write_text("\n".join(rows), encoding="utf-8")
    (folder / "dev.tsv").write_text("\n".join([rows[0], "0\ta\tfilm\tperhaps"]), encoding="utf-8")
    config = write_config(root, "rte", dataset_dir=str(root / "broken"))
    assert run_here(config) == 2
    error = capsys.readouterr().err
    assert f"{folder / 'dev.tsv'}: line 2: label is 'perhaps', not one of entailment, not_entailment" in error
    assert not (root / "runs" / "rte").exists()


@pytest.mark.parametrize("packing", [[], PACKED], ids=["samples", "packs"])
def test_generated_data_for_throughput(root: Path, packing: list[str]) -> None:
    changes = {"generated_dataset": True, "num_epochs": None, "total_num_train_samples": 80, "dataset_dir": None}
    assert run_here(write_config(root, "iflytek", **changes, vocab_file=None), *packing, "--name", "generated") == 0
    assert not (root / "runs" / "generated" / "scores.json").exists()
