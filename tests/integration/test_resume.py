"""A run that is interrupted and resumed equals an uninterrupted run to the bit."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints.folder import facts_as_json, read_facts
from tests.support.runs import (
    assert_same_run,
    at_step,
    checkpoints,
    copy_of,
    events,
    killed_at,
    logged,
    state,
    terminate,
    train,
    trained,
    write_config,
    write_dataset,
)


@pytest.fixture(scope="module")
def config(place, dataset) -> Path:
    return write_config(place / "whole.json", dataset)


@pytest.fixture(scope="module")
def whole(place, config) -> Path:
    """An uninterrupted run of 26 updates over 4.6 epochs."""
    return trained(config, place / "runs")


@pytest.fixture(scope="module")
def stopped(place, config) -> tuple[Path, str]:
    """A run that SIGTERM stopped at step 10, and its output."""
    with pytest.MonkeyPatch.context() as patch, at_step(patch, 10, terminate):
        outcome = train(config, place / "runs", "--name", "stopped")
    assert outcome.status == 143, outcome.errors  # 128 + SIGTERM
    return place / "runs" / "stopped", outcome.output


def test_a_signal_saves_and_says_how_to_go_on(stopped, config, place):
    run, printed = stopped
    assert checkpoints(run) == ["step-00000004", "step-00000008", "step-00000010"]
    assert "stopped by SIGTERM at step 10 of 26" in printed
    script = "python run_pretraining.py"
    assert f"{script} --config {config} --output-dir {place / 'runs'} --name stopped --resume" in printed


def test_stopped_and_resumed(stopped, whole, config, place):
    run = copy_of(stopped[0], "resumed")
    outcome = train(config, place / "runs", "--name", "resumed", "--resume")
    assert outcome.status == 0, outcome.errors
    assert "resuming from step 10" in outcome.errors
    assert_same_run(run, whole)
    assert events(run) == ["begin", "interrupt", "resume", "end"]


def test_killed_and_the_same_command_again(whole, config, place, monkeypatch):
    """After two kills, the steps since the last checkpoint are trained and logged again, without incomplete lines."""
    run = place / "runs" / "killed"
    for step in (6, 14):
        killed_at(monkeypatch, step, config, place / "runs", "--name", "killed")
        assert [period["step"] for period in logged(run)] == list(range(2, step + 1, 2))
        with open(run / "metrics.jsonl", "a") as file:
            file.write('{"step": 16, "met')
    assert train(config, place / "runs", "--name", "killed").status == 0
    assert_same_run(run, whole)
    # A run that has ended, or that another config would change, is not continued; the new one gets a number.
    tail = ("--total-num-train-samples", "64")
    killed_at(monkeypatch, 2, config, place / "runs", "--name", "killed", *tail)
    second = train(config, place / "runs", "--name", "killed", *tail)
    assert second.status == 0 and "it starts from the beginning" in second.errors  # continues killed-2
    assert logged(place / "runs" / "killed-2")[-1]["step"] == 4
    third = train(config, place / "runs", "--name", "killed", *tail)
    assert "killed has ended; the name of this run is killed-3" in third.errors
    assert_same_run(run, whole)


def test_killed_before_the_first_checkpoint(whole, config, place, monkeypatch):
    killed_at(monkeypatch, 2, config, place / "runs", "--name", "early")
    outcome = train(config, place / "runs", "--name", "early", "--resume")
    assert outcome.status == 0 and "it starts from the beginning" in outcome.errors
    assert_same_run(place / "runs" / "early", whole)


def test_a_damaged_checkpoint_is_named_and_kept_and_the_one_before_it_taken(stopped, whole, config, place):
    run = copy_of(stopped[0], "damaged")
    data = next((run / "checkpoints" / "step-00000010").glob("optimizer.data*"))
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    outcome = train(config, place / "runs", "--name", "damaged", "--resume")
    assert outcome.status == 0
    assert "resuming from step 8" in outcome.errors
    assert "step-00000010 is damaged" in outcome.errors and "optimizer.data" in outcome.errors
    kept = run / "checkpoints" / "damaged-step-00000010"
    assert (kept / data.name).read_bytes() == content
    assert_same_run(run, whole)


def test_never_a_silent_restart_where_all_are_damaged(stopped, config, place):
    run = copy_of(stopped[0], "all-damaged")
    for folder in (run / "checkpoints").iterdir():
        (folder / "checkpoint.json").write_text("{")
    for _ in range(2):
        outcome = train(config, place / "runs", "--name", "all-damaged", "--resume")
        assert outcome.status == 2
        assert "no checkpoint of" in outcome.error and "damaged-step-00000010" in outcome.error


def edit(name: str, **changes: Any) -> Callable[[Path], None]:
    """Change the values of a JSON file, or of the first line of a file of JSON lines; ... removes one."""

    def change(run: Path) -> None:
        first, *others = (run / name).read_text().splitlines() if name.endswith("l") else [(run / name).read_text()]
        content = {**json.loads(first), **changes}
        kept = {key: value for key, value in content.items() if value is not ...}
        (run / name).write_text("\n".join([json.dumps(kept), *others]) + "\n")

    return change


def edit_facts(**changes: Any) -> Callable[[Path], None]:
    """Change what all checkpoints say about themselves, with the right checksum; ... removes a value."""

    def change(run: Path) -> None:
        for folder in (run / "checkpoints").iterdir():
            facts = {**read_facts(folder), **changes}
            kept = {key: value for key, value in facts.items() if value is not ... and key != "sha256"}
            (folder / "checkpoint.json").write_text(facts_as_json(kept))

    return change


def replace(name: str, content: str | None = None) -> Callable[[Path], None]:
    """Replace a file or folder by another file, or else by an empty folder."""

    def change(run: Path) -> None:
        shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()
        (run / name).mkdir() if content is None else (run / name).write_text(content)

    return change


BROKEN: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "no checkpoint is left": (replace("checkpoints"), ("checkpoints.json", "--save-ckpt-path")),
    "a file for the checkpoints": (replace("checkpoints", "x"), ("checkpoints.json", "none of them exists")),
    "checkpoints of another run": (edit_facts(run="other"), ("are of another run",)),
    "the history of another run": (edit("history.jsonl", id="other"), ("are of another run",)),
    "checkpoints of a newer version": (edit_facts(version=3), ("checkpoint.json", "update")),
    "checkpoints without a position": (edit_facts(data=...), ("step-00000010", "its position")),
    "no config": (lambda run: (run / "resolved_config.json").unlink(), ("resolved_config.json", "No such file")),
    "a config that is cut off": (replace("resolved_config.json", '{"config": {"se'), ("resolved_config.json",)),
    "a config that is a list": (replace("resolved_config.json", '{"config": []}'), ("resolved_config.json",)),
    "a batch that is a text": (
        edit("resolved_config.json", config={"global_batch": {"replicas": "two"}}),
        ("global_batch.replicas is 1 and was two",),
    ),
    "no history": (lambda run: (run / "history.jsonl").unlink(), ("history.jsonl", "restore it")),
    "a folder for the history": (replace("history.jsonl"), ("history.jsonl", "restore it")),
    "a folder for the metrics": (replace("metrics.jsonl"), ("metrics.jsonl: Is a directory",)),
    "a folder for the log": (replace("train.log"), ("train.log: Is a directory",)),
    "a folder for the lock": (replace(".lock"), ("Is a directory",)),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_run_folder_is_refused_and_left_as_it_is(name, stopped, config, place):
    damage, words = BROKEN[name]
    run = copy_of(stopped[0], name)
    damage(run)
    before = contents(run)
    outcome = train(config, place / "runs", "--name", name, "--resume")
    assert outcome.status == 2
    assert all(word in outcome.error for word in words), outcome.error
    assert contents(run) == before


def contents(run: Path) -> dict[Path, bytes]:
    """Return the content of all files of a run but its lock, which names the last process."""
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}


def test_what_a_run_can_do_without_is_logged(stopped, whole, config, place):
    """Without its metrics, with an older checkpoint under a later name, and after the clock was set back."""
    run = copy_of(stopped[0], "without")
    (run / "metrics.jsonl").unlink()
    (run / "checkpoints" / "step-00000004").rename(run / "checkpoints" / "step-00000099")
    for path in run.rglob("*"):
        os.utime(path, (0, 0))
    outcome = train(config, place / "runs", "--name", "without", "--resume")
    assert outcome.status == 0, outcome.errors
    assert "without/metrics.jsonl is missing" in outcome.errors and "resuming from step 10" in outcome.errors
    assert "step-00000099 is damaged (checkpoint.json is that of step 4)" in outcome.errors
    one, other = state(run), state(whole)
    assert all(np.array_equal(one[name], other[name]) for name in other)
    assert logged(run) == [period for period in logged(whole) if period["step"] > 10]


def test_other_numbers_of_replicas_at_the_same_global_batch(stopped, whole, config, place):
    run = copy_of(stopped[0], "replicas")
    split = ("--global-batch.replicas", "2", "--global-batch.grad-acc-steps-per-replica", "2")
    outcome = train(config, place / "runs", "--name", "replicas", "--resume", *split)
    assert outcome.status == 0, outcome.errors
    one, other = state(run), state(whole)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-6, atol=1e-6, err_msg=name)


CHANGES = {
    "seed": ("--seed", "7"),
    "optimizer_opts.name": ("--optimizer-opts.name", "Muon"),
    "optimizer_opts.learning_rate.max_learning_rate": ("--optimizer-opts.learning-rate.max-learning-rate", "0.02"),
    "total_num_train_samples": ("--total-num-train-samples", "1600"),
    "data.shuffle": ("--data.shuffle", "false"),
    "bert_config.hidden_size": ("--bert-config.hidden-size", "32"),
    "global_batch": ("--global-batch.grad-acc-steps-per-replica", "8"),
    # Dropout masks belong to micro batches.
    "global_batch.micro_batch_size": (
        "--global-batch.micro-batch-size", "8", "--global-batch.grad-acc-steps-per-replica", "2"
    ),
    "dataset_dir": ("--dataset-dir", "{other}"),
}  # fmt: skip


@pytest.mark.parametrize("field", CHANGES)
def test_what_would_change_the_outcome_is_refused(field, stopped, config, place):
    other = place / "other"
    if not other.exists():
        write_dataset(other, records=91)
    before = state(stopped[0])
    arguments = [argument.format(other=other) for argument in CHANGES[field]]
    outcome = train(config, place / "runs", "--name", "stopped", "--resume", *arguments)
    assert outcome.status == 2
    assert field in outcome.error
    if field != "dataset_dir":
        assert "was" in outcome.error  # both values
    after = state(stopped[0])
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_what_does_not_change_it_may_change(stopped, whole, config, place, dataset):
    run = copy_of(stopped[0], "moved")
    shutil.copytree(dataset, place / "moved data", dirs_exist_ok=True)
    changes = (
        "--dataset-dir", str(place / "moved data"), "--data.reader-threads", "1", "--keep-last", "2",
        "--ckpt-every-n-steps-per-execution", "3", "--save-ckpt-path", str(place / "elsewhere"),
    )  # fmt: skip
    outcome = train(config, place / "runs", "--name", "moved", "--resume", *changes)
    assert outcome.status == 0, outcome.errors
    assert "keep_last is 2 now and was 5" in outcome.errors
    assert checkpoints(run)[-1] == "step-00000010"
    shutil.copytree(place / "elsewhere", run / "checkpoints", dirs_exist_ok=True)
    assert checkpoints(run)[-2:] == ["step-00000024", "step-00000026"]
    assert_same_run(run, whole)


def test_phase_2_resumes_without_the_run_it_started_from(whole, place, dataset, monkeypatch):
    start = copy_of(whole, "phase1")
    config = write_config(place / "phase2.json", dataset, updates=10, seed=5, pretrained_ckpt_path=str(start))
    assert train(config, place / "runs", "--name", "phase2-whole").status == 0
    killed_at(monkeypatch, 6, config, place / "runs", "--name", "phase2")
    shutil.rmtree(start)
    outcome = train(config, place / "runs", "--name", "phase2", "--resume")
    assert outcome.status == 0, outcome.errors
    assert_same_run(place / "runs" / "phase2", place / "runs" / "phase2-whole")


def test_a_complete_run_has_nothing_left_to_train(whole, config, place):
    run = copy_of(whole, "complete")
    before = checkpoints(run)
    assert train(config, place / "runs", "--name", "complete", "--resume").status == 0
    assert checkpoints(run) == before
    assert_same_run(run, whole)


def test_nothing_to_resume(config, place, whole):
    outcome = train(config, place / "runs", "--name", "nowhere", "--resume")
    assert outcome.status == 2
    assert "no run" in outcome.error and "complete" in outcome.error


@pytest.mark.long
@pytest.mark.parametrize("name", ["LAMB", "Muon"])
def test_packs_other_optimizers_and_a_loss_scale(name, place, dataset, monkeypatch):
    """Generated packs have 64 global batches per epoch, and the kill comes in the second epoch."""
    config = write_config(
        place / f"packs-{name}.json",
        dataset,
        dataset_dir=None,
        generated_dataset=True,
        total_num_train_samples=2 * 16 * 80,
        packing={"max_sequences_per_pack": 2},
        optimizer_opts={"name": name, "loss_scaling": 64.0, "gradient_accumulation_reduction": "running_mean"},
        ckpt_every_n_steps_per_execution=10,
    )
    assert train(config, place / "runs", "--name", f"packs-{name}-whole").status == 0
    assert logged(place / "runs" / f"packs-{name}-whole")[-1]["step"] == 80
    killed_at(monkeypatch, 70, config, place / "runs", "--name", f"packs-{name}")
    outcome = train(config, place / "runs", "--name", f"packs-{name}")
    assert outcome.status == 0 and "resuming from step 60" in outcome.errors
    assert_same_run(place / "runs" / f"packs-{name}", place / "runs" / f"packs-{name}-whole")
