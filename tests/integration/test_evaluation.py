"""Evaluation while training: scores, early stopping, the best checkpoint, and a resume that equals no interruption."""

from __future__ import annotations

import contextlib
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints.export.hf_folder import export  # room: model_card
from keras_extensions.listeners.outputs import MetricsFile
from reports.page import write_report
from tests.support.record_samples import VOCABULARY, write_manifest
from tests.support.runs import (
    Killed,
    assert_same_run,
    at_step,
    checkpoints,
    evaluations,
    kill,
    killed_at,
    metrics,
    read_json,
    state,
    terminate,
    train,
    trained,
    write_config,
    write_dataset,
)
from training.evaluation import Record, find_best_step
from training.run_folder import RunFolder

pytestmark = pytest.mark.slow

# On random text this score stays at a half, so the first evaluation is the best and the third one ends the training.
STOPS_EARLY = {"every": 4, "patience": 2, "metric": "nsp_accuracy"}


@pytest.fixture(scope="module")
def dataset(root: Path) -> Path:
    write_dataset(root / "data")
    write_dataset(root / "data" / "validation", records=20)
    return root / "data"


@pytest.fixture(scope="module")
def config(root: Path, dataset: Path) -> Path:
    return write_config(root / "whole.json", dataset, evaluation=STOPS_EARLY, keep_last=1, report=True)


@pytest.fixture(scope="module")
def whole(root: Path, config: Path) -> Path:
    return trained(config, root / "runs")


@pytest.fixture(scope="module")
def plain(root: Path, dataset: Path) -> Path:
    return trained(write_config(root / "plain.json", dataset), root / "runs")


def scores(run: Path) -> dict[str, float]:
    return read_json(run / "scores.json")


def assert_same(run: Path, whole: Path) -> None:
    assert_same_run(run, whole)  # the state in the last checkpoint, and all of metrics.jsonl but times
    assert scores(run) == scores(whole)
    assert checkpoints(run) == checkpoints(whole)
    best = "checkpoints/best.json"
    assert (run / best).read_bytes() == (whole / best).read_bytes()


def test_training_ends_early_and_the_best_checkpoint_gives_the_scores(whole: Path) -> None:
    result = evaluations(whole)
    assert [step for step, _ in result] == [4, 8, 12]
    assert checkpoints(whole) == ["step-00000004", "step-00000012"]  # the best one, and the last one
    assert read_json(whole / "checkpoints" / "best.json") == {"step": 4}
    assert scores(whole) == result[0][1]
    assert 0 < scores(whole)["mlm_loss"] < math.log(50) + 1
    report = (whole / "report.html").read_text(encoding="utf-8")
    assert "Ended early: step 12 of 26" in report


def test_an_evaluation_does_not_change_the_training(plain: Path, whole: Path) -> None:
    first = [line for line in metrics(plain) if line["step"] <= 12]
    periods = [line for line in metrics(whole) if "metrics" in line]
    assert [line["metrics"] for line in first] == [line["metrics"] for line in periods]
    assert set(scores(plain)) == {"mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy"}


def test_an_evaluation_follows_each_epoch(root: Path, dataset: Path, plain: Path) -> None:
    """An epoch has 5.6 updates; it ends within logging periods and global batches."""
    changes = {"global_batches_per_log": 20, "checkpoint_minutes": 1e-6, "keep_last": None}
    config = write_config(root / "epochs.json", dataset, evaluation={"every": "epoch"}, **changes)
    run = trained(config, root / "runs")
    ends = [-(-90 * epoch // 16) for epoch in (1, 2, 3, 4)]
    assert [step for step, _ in evaluations(run)] == [*ends, 26]
    periods = [line for line in metrics(run) if "metrics" in line]
    assert [line["step"] for line in periods] == sorted([*ends, 20, 26])
    expected = state(plain)
    assert all(np.array_equal(expected[name], value) for name, value in state(run).items())


def test_evaluation_without_training(root: Path, config: Path, whole: Path) -> None:
    """The weights of the best checkpoint have the scores that the run ended with."""
    evaluate = ("--do-training", "false", "--evaluation.every", "none", "--evaluation.patience", "none")
    arguments = (*evaluate, "--evaluation.metric", "none", "--pretrained-ckpt-path", str(whole), "--name", "again")
    train(config, root / "runs", *arguments, status=0)
    assert scores(root / "runs" / "again") == scores(whole)
    assert not checkpoints(root / "runs" / "again")


def test_a_run_that_is_resumed_only_to_be_evaluated_has_its_best_weights(
    root: Path, dataset: Path, whole: Path
) -> None:
    changes = {"pretrained_ckpt_path": str(whole), "optimizer_opts": {"learning_rate": {"max_learning_rate": 0.05}}}
    config = write_config(root / "scored.json", dataset, evaluation=STOPS_EARLY, keep_last=1, **changes)
    run = trained(config, root / "runs")
    best, last = read_json(run / "checkpoints" / "best.json")["step"], evaluations(run)[-1][0]
    assert best < last
    before, path = scores(run), run / "scores.json"
    path.unlink()
    train(config, root / "runs", "--name", "scored", "--resume", "--do-training", "false", status=0)
    assert scores(run) == before
    # The run has ended as before: the same command begins another one.
    assert RunFolder(run).history.finished and "Ended early" in write_report(run).read_text(encoding="utf-8")


def killed_within_evaluation(monkeypatch: Any, step: int, config: Path, root: Path, *arguments: str) -> None:
    """Train until the run is killed before the evaluation at ``step`` is written."""
    original = MetricsFile.evaluated

    def write(file: MetricsFile, evaluation: Any) -> None:
        if evaluation.step == step:
            kill()
        original(file, evaluation)

    with monkeypatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(MetricsFile, "evaluated", write)
        ended = train(config, root / "runs", *arguments)
        raise AssertionError(f"the run was not killed: {ended.errors}")


def test_an_interrupted_run_has_the_same_evaluations(config: Path, root: Path, whole: Path, monkeypatch: Any) -> None:
    """It is killed between two evaluations, gets SIGTERM before one, and is killed within the last one."""
    run, name = root / "runs" / "interrupted", ("--name", "interrupted")
    killed_at(monkeypatch, 6, config, root / "runs", *name)
    with at_step(monkeypatch, 8, terminate):
        train(config, root / "runs", *name, status=143)
    assert [step for step, _ in evaluations(run)] == [4]
    # With a checkpoint of step 12, so that the resumed run begins with the evaluation.
    killed_within_evaluation(monkeypatch, 12, config, root, *name, "--ckpt-every-n-steps-per-execution", "1")
    assert "resuming from step 12" in train(config, root / "runs", *name, status=0).errors
    assert_same(run, whole)


def test_a_run_that_was_stopped_within_its_last_evaluation_makes_it_later(
    root: Path, dataset: Path, monkeypatch: Any
) -> None:
    """Although nothing is left to train."""
    config, name = write_config(root / "last.json", dataset, updates=4, evaluation={"every": 2}), ("--name", "last")
    with at_step(monkeypatch, 4, terminate):
        train(config, root / "runs", *name, status=143)
    assert [step for step, _ in evaluations(root / "runs" / "last")] == [2]
    train(config, root / "runs", *name, status=0)
    assert [step for step, _ in evaluations(root / "runs" / "last")] == [2, 4]


def test_a_resume_with_another_folder_for_checkpoints_keeps_the_best_one(
    config: Path, root: Path, whole: Path, monkeypatch: Any
) -> None:
    """The best checkpoint is in the first folder. The second start writes none, the third does."""
    run, name = root / "runs" / "moved", ("--name", "moved")
    elsewhere = (*name, "--save-ckpt-path", str(root / "elsewhere"))
    killed_at(monkeypatch, 6, config, root / "runs", *name)
    killed_at(monkeypatch, 6, config, root / "runs", *elsewhere)
    killed_at(monkeypatch, 10, config, root / "runs", *elsewhere, "--ckpt-every-n-steps-per-execution", "1")
    assert list((root / "elsewhere").glob("step-*"))
    train(config, root / "runs", *elsewhere, status=0)
    assert scores(run) == scores(whole) and checkpoints(run) == ["step-00000004"]


def test_the_card_of_an_export_has_its_checkpoints_scores(whole: Path, tmp_path: Path) -> None:  # room: model_card
    export(str(whole), tmp_path / "best")
    export(str(whole / "checkpoints" / "step-00000012"), tmp_path / "last")
    best, last = ((tmp_path / name / "README.md").read_text(encoding="utf-8") for name in ("best", "last"))
    assert f"| mlm_loss, validation | {scores(whole)['mlm_loss']:.4f} |" in best
    assert ", validation |" not in last and ", training, update 12 |" in last


def test_a_run_that_ended_early_has_nothing_left_to_train(config: Path, root: Path, whole: Path) -> None:
    before = state(whole)
    train(config, root / "runs", "--name", "whole", "--resume", status=0)
    after = state(whole)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert [step for step, _ in evaluations(whole)] == [4, 8, 12]


def test_data_without_held_out_text_is_refused(root: Path, dataset: Path) -> None:
    config = write_config(root / "wrong.json", dataset / "validation", evaluation={"every": 4})
    error = train(config, root / "runs", status=2).error
    assert "--validation-fraction" in error and "validation_dir" in error


def test_an_unknown_metric_is_refused_before_training(root: Path, dataset: Path) -> None:
    changes = {"evaluation": {"every": 4, "metric": "bleu"}, "show_accuracy": False}
    config = write_config(root / "bleu.json", dataset, name="bleu", **changes)
    for flags in ([], ["--plan"]):
        outcome = train(config, root / "runs", *flags, status=2)
        assert outcome.error == "error: evaluation.metric is bleu; set it to one of mlm_loss, nsp_loss"
        assert not (root / "runs" / "bleu").exists()


def test_held_out_text_of_another_vocabulary_is_refused(root: Path, dataset: Path) -> None:
    data = Path(shutil.copytree(dataset, root / "other words"))
    for folder, counts, digit in ((data, (30, 30, 30), "0"), (data / "validation", (6, 7, 7), "1")):
        files = {f"part-{number}.tfrecord": count for number, count in enumerate(counts)}
        write_manifest(folder, files, vocabulary={"file": "vocab.txt", "sha256": digit * 64, "size": VOCABULARY})
    outcome = train(write_config(root / "other.json", data), root / "runs", status=2)
    assert "names another vocabulary (SHA-256) than" in outcome.error


def test_the_best_of_losses_is_the_lowest() -> None:
    records = [Record(1, 0.5), Record(2, math.nan), Record(3, 0.25), Record(4, 0.25)]
    assert find_best_step(records, "mlm_loss") == 3
    assert find_best_step(records, "accuracy") == 1
    assert find_best_step(records[1:2], "accuracy") is None
