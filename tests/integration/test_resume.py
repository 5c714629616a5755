"""A run that is interrupted and resumed equals an uninterrupted run to the bit."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints.writer import rewrite_description
from tasks import train as train_in_python
from tests.support.runs import (
    Killed,
    assert_same_run,
    at_step,
    checkpoints,
    copy_of,
    events,
    kill,
    killed_at,
    logged,
    state,
    terminate,
    train,
    trained,
    write_config,
    write_dataset,
    write_json,
)
from utilities.errors import Stopped

pytestmark = pytest.mark.slow

UPDATES = 26  # over 4.6 epochs


@pytest.fixture(scope="module")
def start(root, dataset) -> Path:
    return trained(write_config(root / "start.json", dataset, updates=2), root / "runs")


@pytest.fixture(scope="module")
def config(root, dataset, start) -> Path:
    return write_config(root / "whole.json", dataset, UPDATES, seed=5, pretrained_ckpt_path=str(start))


@pytest.fixture(scope="module")
def whole(root, config) -> Path:
    return trained(config, root / "runs")


@pytest.fixture(scope="module")
def stopped(root, config) -> tuple[Path, str]:
    """A run that the same command started three times, and the output of the last time.

    It is killed before its first checkpoint and after it, both times while it writes metrics, and then gets SIGTERM.
    """
    run = root / "runs" / "stopped"
    with pytest.MonkeyPatch.context() as patch:
        for step in (2, 6):
            killed_at(patch, step, config, root / "runs", "--name", "stopped")
            assert [period["step"] for period in logged(run)] == list(range(2, step + 1, 2))
            with open(run / "metrics.jsonl", "a") as file:
                file.write('{"step": 8, "met')
        with at_step(patch, 10, terminate):
            outcome = train(config, root / "runs", "--name", "stopped", status=128 + signal.SIGTERM)
    return run, outcome.output


def test_a_signal_saves_and_the_command_to_resume_is_printed(stopped, config, root):
    run, printed = stopped
    assert events(run) == ["begin", "resume", "resume", "interrupt"]
    log = (run / "train.log").read_text(encoding="utf-8")
    assert "it starts from the beginning" in log and "resuming from step 4" in log
    assert checkpoints(run) == ["step-00000004", "step-00000008", "step-00000010"]
    assert f"stopped by SIGTERM at step 10 of {UPDATES}" in printed
    script = "python run_pretraining.py"
    assert f"{script} --config {config} --output-dir {root / 'runs'} --name stopped --resume" in printed


def test_an_interrupted_run_equals_an_uninterrupted_one(stopped, whole, start, config, root):
    """The run that it started from has been deleted."""
    run = copy_of(stopped[0], "resumed")
    hidden = start.rename(start.with_name("hidden"))
    outcome = train(config, root / "runs", "--name", "resumed", "--resume")
    hidden.rename(start)
    assert outcome.status == 0 and "resuming from step 10" in outcome.errors, outcome.errors
    assert_same_run(run, whole)
    assert events(run) == [*events(stopped[0]), "resume", "end"]


def test_the_same_command_continues_only_an_unfinished_run_with_the_same_outcome(
    stopped, whole, config, root, monkeypatch
):
    """Otherwise a new run begins, under the next free name."""

    def begin(name: str, *arguments: str) -> None:
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            patch.setattr("training.trainer.initial_model", lambda *_: kill())
            outcome = train(config, root / "runs", "--name", name, *arguments)
            raise AssertionError(outcome.errors)

    begin("whole")
    assert "whole has ended; the name of this run is whole-2" in (root / "runs/whole-2/train.log").read_text()
    copy_of(stopped[0], "unfinished")
    for _ in range(2):
        begin("unfinished", "--total-num-train-samples", "64")
    log = (root / "runs/unfinished-2/train.log").read_text()
    assert "is not continued by this config" in log and "it starts from the beginning" in log
    assert not (root / "runs" / "unfinished-3").exists()
    assert events(root / "runs" / "unfinished") == events(stopped[0])


def test_a_damaged_run_resumes_from_its_newest_intact_checkpoint(stopped, whole, config, root):
    """The newest checkpoint is damaged, another has a later name, metrics are missing, and the clock was set back."""
    run = copy_of(stopped[0], "damaged")
    (run / "metrics.jsonl").unlink()
    (run / "checkpoints" / "step-00000004").rename(run / "checkpoints" / "step-00000099")
    data = next((run / "checkpoints" / "step-00000010").glob("optimizer.data*"))
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    for path in run.rglob("*"):
        os.utime(path, (0, 0))
    outcome = train(config, root / "runs", "--name", "damaged", "--resume", status=0)
    assert "resuming from step 8" in outcome.errors
    assert "damaged/metrics.jsonl is missing" in outcome.errors
    assert "step-00000010 is damaged" in outcome.errors and data.name in outcome.errors
    assert "step-00000099 is damaged (checkpoint.json is that of step 4)" in outcome.errors
    assert (run / "checkpoints" / "damaged-step-00000010" / data.name).read_bytes() == content
    assert logged(run) == [period for period in logged(whole) if period["step"] > 8]
    one, other = state(run), state(whole)
    assert all(np.array_equal(one[name], other[name]) for name in other)


def test_a_run_whose_checkpoints_are_all_damaged_is_refused(stopped, config, root):
    run = copy_of(stopped[0], "all-damaged")
    for folder in (run / "checkpoints").iterdir():
        (folder / "checkpoint.json").write_text("{")
    for _ in range(2):
        outcome = train(config, root / "runs", "--name", "all-damaged", "--resume", status=2)
        assert "no checkpoint of" in outcome.error and "damaged-step-00000010" in outcome.error


def edit_description(**changes: Any) -> Callable[[Path], None]:
    """Change what all checkpoints say about themselves, with the right checksum."""

    def change(run: Path) -> None:
        for folder in (run / "checkpoints").iterdir():
            rewrite_description(folder, changes)

    return change


def replace(name: str) -> Callable[[Path], None]:
    """Replace a file or folder by an empty folder."""

    def change(run: Path) -> None:
        shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()
        (run / name).mkdir()

    return change


BROKEN: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "no checkpoint is left": (replace("checkpoints"), ("checkpoints.json", "--save-ckpt-path")),
    "checkpoints of another run": (edit_description(run="other"), ("are of another run",)),
    "no config": (lambda run: (run / "resolved_config.json").unlink(), ("resolved_config.json", "No such file")),
    "a batch that is a text": (
        lambda run: write_json(run / "resolved_config.json", {"config": {"global_batch": {"replicas": "two"}}}),
        ("global_batch.replicas is 1 and was two",),
    ),
    "a folder for the history": (replace("history.jsonl"), ("history.jsonl", "restore it")),
    "a folder for the metrics": (replace("metrics.jsonl"), ("metrics.jsonl: Is a directory",)),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_run_folder_is_refused_and_not_changed(name, stopped, config, root):
    damage, words = BROKEN[name]
    run = copy_of(stopped[0], name)
    damage(run)
    before = contents(run)
    outcome = train(config, root / "runs", "--name", name, "--resume", status=2)
    assert all(word in outcome.error for word in words), outcome.error
    assert contents(run) == before


def contents(run: Path) -> dict[Path, bytes]:
    """Return the content of all files of a run but its lock, which names the last process."""
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}


def test_changes_of_the_outcome_are_refused(stopped, config, root):
    """Other data, and of the fields one; ``tests/unit/training/test_resume.py`` has all of them."""
    before = contents(stopped[0])
    for field, other in (("seed", "7"), ("dataset_dir", str(write_dataset(root / "other", records=91)))):
        change = ("--" + field.replace("_", "-"), other)
        assert field in train(config, root / "runs", "--name", "stopped", "--resume", *change, status=2).error
    assert contents(stopped[0]) == before


def test_a_plan_refuses_what_cannot_be_resumed(stopped, config, root):
    before, plan = contents(stopped[0]), ("--resume", "--plan")
    assert "seed" in train(config, root / "runs", "--name", "stopped", *plan, "--seed", "7", status=2).error
    assert "no run to resume" in train(config, root / "runs", "--name", "missing", *plan, status=2).error
    train(config, root / "runs", "--name", "stopped", *plan, "--keep-last", "2", status=0)
    assert contents(stopped[0]) == before


def test_other_settings_may_change(stopped, whole, config, root, dataset):
    run = copy_of(stopped[0], "moved")
    shutil.copytree(dataset, root / "moved data", dirs_exist_ok=True)
    changes = (
        "--dataset-dir", str(root / "moved data"), "--data.reader-threads", "1", "--keep-last", "2",
        "--ckpt-every-n-steps-per-execution", "3", "--save-ckpt-path", str(root / "elsewhere"),
        "--global-batch.replicas", "2", "--global-batch.grad-acc-steps-per-replica", "2",  # the same global batch
    )  # fmt: skip
    outcome = train(config, root / "runs", "--name", "moved", "--resume", *changes, status=0)
    assert "keep_last is 2 now and was 5" in outcome.errors
    assert checkpoints(run)[-1] == "step-00000010"
    shutil.copytree(root / "elsewhere", run / "checkpoints", dirs_exist_ok=True)
    assert checkpoints(run)[-2:] == ["step-00000024", "step-00000026"]
    assert_same_run(run, whole)


def test_a_complete_run_has_nothing_left_to_train(whole, config, root):
    run = copy_of(whole, "complete")
    before = checkpoints(run)
    train(config, root / "runs", "--name", "complete", "--resume", status=0)
    assert checkpoints(run) == before
    assert_same_run(run, whole)


def rates_after(run: Path, step: int) -> list[float]:
    return [line["learning_rate"] for line in logged(run) if line["step"] > step]


def test_a_run_goes_on_with_a_new_length_only_if_asked(stopped, whole, config, root):
    """Its rates are those of the new schedule from there on, sooner at its end or later, also after the end."""
    recorded = json.loads((whole / "resolved_config.json").read_text())["config"]
    each = recorded["total_num_train_samples"] // UPDATES
    peak = recorded["optimizer_opts"]["learning_rate"]["max_learning_rate"]
    warm_up = recorded["optimizer_opts"]["learning_rate"]["warmup_frac"]
    for name, source, begun, updates in (("sooner", stopped[0], 10, 16), ("later", whole, UPDATES, UPDATES + 6)):
        run = copy_of(source, name)
        longer = ["--name", name, "--resume", "--total-num-train-samples", str(updates * each)]
        refused = train(config, root / "runs", *longer, status=2)
        assert "--new-length true" in refused.error and "total_num_train_samples" in refused.error
        train(config, root / "runs", *longer, "--new-length", "true", status=0)
        steps = [line["step"] for line in logged(run)]
        assert steps[-1] == updates and steps == sorted(set(steps))
        first = round(warm_up * updates)
        wanted = [peak * (updates - step + 1) / (updates - first) for step in steps if step > begun]
        np.testing.assert_allclose(rates_after(run, begun), wanted, rtol=1e-5)


def test_python_stops_a_run_after_a_period(config, root):
    with pytest.raises(Stopped, match="at step 6"):
        train_in_python("pretraining", config, until=lambda period: period.step >= 6, name="until",
                        output_dir=str(root / "runs"))  # fmt: skip
    assert checkpoints(root / "runs" / "until")[-1] == "step-00000006"


def test_nothing_to_resume(config, root, whole):
    outcome = train(config, root / "runs", "--name", "nowhere", "--resume", status=2)
    assert "no run" in outcome.error and "complete" in outcome.error
