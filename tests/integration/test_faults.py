"""A fault during a run gives one clear line and damages nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from checkpoints.folder import damage
from tests.support.record_samples import write_samples
from tests.support.runs import (
    assert_same_run,
    at_step,
    checkpoints,
    copy_of,
    events,
    files_up_to,
    killed_at,
    logged,
    read_lines,
    state,
    terminate,
    train,
    trained,
    write_config,
    write_dataset,
)
from training.run_folder import FolderLocks

IN_ORDER = {"data": {"shuffle": False}, "global_batches_per_log": 1, "ckpt_every_n_steps_per_execution": 2}
BAD_RECORD, BAD_BATCH = 70, 4  # of 16 records each


@pytest.fixture(scope="module")
def poisoned(root) -> Path:
    """A data set whose global batch 4 has a loss of NaN."""
    return write_dataset(root / "poisoned", records=160, poisoned=BAD_RECORD)


@pytest.fixture(scope="module")
def without(root, poisoned) -> Path:
    """A run of 7 updates on the same data without batches 3 and 4."""
    folder = root / "clean"
    folder.mkdir()
    write_samples(folder / "a.tfrecord", range(3 * 16))
    write_samples(folder / "b.tfrecord", range(5 * 16, 160))
    return trained(write_config(root / "clean.json", folder, updates=7, **IN_ORDER), root / "runs")


def same_but_for_names(run: Path, other: Path) -> None:
    assert_same_run(run, other)
    assert [period["step"] for period in logged(run)] == list(range(1, 8))


def test_back_to_the_last_checkpoint_and_past_the_batches_at_fault(root, poisoned, without):
    """Step 5 diverges; its batch and the one before are left out. The checkpoint of step 4 is not trusted."""
    config = write_config(root / "rewind.json", poisoned, updates=7, on_divergence="rewind", **IN_ORDER)
    outcome = train(config, root / "runs")
    assert outcome.status == 0, outcome.errors
    assert "at step 5: back to step 2, leaving out the global batches 3, 4 (rewind 1 of at most 3)" in outcome.errors
    run = root / "runs" / "rewind"
    same_but_for_names(run, without)
    assert "diverged-step-00000004" in checkpoints(run)
    assert events(run) == ["begin", "rewind", "end"]
    rewind = read_lines(run / "history.jsonl")[1]
    assert (rewind["step"], rewind["to"], rewind["skipped"]) == (5, 2, [3, 4])


def test_what_was_left_out_stays_left_out_after_a_kill(root, poisoned, without, monkeypatch):
    """The run is killed twice: right after the rewind, before any new checkpoint, and later."""
    config = write_config(root / "again.json", poisoned, updates=7, on_divergence="rewind", **IN_ORDER)
    seen = []

    def kill_the_second_time() -> None:
        seen.append(None)
        if len(seen) == 2:
            raise SystemExit

    with at_step(monkeypatch, 3, kill_the_second_time), contextlib.suppress(SystemExit):
        train(config, root / "runs", "--name", "again")
    killed_at(monkeypatch, 6, config, root / "runs", "--name", "again")
    outcome = train(config, root / "runs", "--name", "again")
    assert outcome.status == 0 and "back to step" not in outcome.errors
    same_but_for_names(root / "runs" / "again", without)


def test_stop_is_the_default_and_rewinds_are_bounded(root, poisoned):
    config = write_config(root / "bounded.json", poisoned, updates=7, **IN_ORDER)
    outcome = train(config, root / "runs")
    assert outcome.status == 2
    assert "at step 5" in outcome.error and "on_divergence" in outcome.error
    assert checkpoints(root / "runs" / "bounded") == ["step-00000002", "step-00000004"]
    outcome = train(config, root / "runs", "--resume", "--on-divergence", "rewind", "--max-rewinds", "0")
    assert outcome.status == 2
    assert "max_rewinds" in outcome.error


def test_weights_that_diverge_for_good_end_the_run(root, dataset):
    rate = {"optimizer_opts": {"name": "AdamW", "learning_rate": {"max_learning_rate": 1e30}}}
    config = write_config(root / "hopeless.json", dataset, on_divergence="rewind", max_rewinds=2, **rate)
    outcome = train(config, root / "runs")
    assert outcome.status == 2
    assert "after 2 rewinds" in outcome.error and "max_learning_rate" in outcome.error


@pytest.fixture(scope="module")
def stopped(root, dataset) -> Path:
    """A run that was stopped at step 10 of 26."""
    config = write_config(root / "stopped.json", dataset)
    with pytest.MonkeyPatch.context() as patch, at_step(patch, 10, terminate):
        assert train(config, root / "runs").status == 128 + signal.SIGTERM
    return root / "runs" / "stopped"


def resume(root: Path, name: str):
    """Return a function that resumes a copy of the stopped run."""
    return train(root / "stopped.json", root / "runs", "--name", name, "--resume")


def all_whole(run: Path) -> bool:
    return all(damage(run / "checkpoints" / name) is None for name in checkpoints(run))


def test_a_disk_too_full_for_a_checkpoint(root, stopped):
    run = copy_of(stopped, "full")
    with files_up_to(20_000):
        outcome = resume(root, "full")
    assert outcome.status == 2
    assert "save_ckpt_path: cannot write" in outcome.error and "(File too large); free space" in outcome.error
    assert checkpoints(run) == checkpoints(stopped) and all_whole(run)
    assert not list((run / "checkpoints").glob(".writing-*"))
    assert resume(root, "full").status == 0  # after space was freed


def test_a_disk_that_fills_up_during_the_run(root, stopped, monkeypatch):
    run = copy_of(stopped, "filling")
    with contextlib.ExitStack() as limits, at_step(monkeypatch, 14, lambda: limits.enter_context(files_up_to(1))):
        outcome = resume(root, "filling")
    assert outcome.status == 2
    assert "File too large" in outcome.error and "--name filling --resume" in outcome.error
    assert all_whole(run)


def test_a_disk_too_full_for_the_log(root, stopped):
    run = copy_of(stopped, "full-log")
    (run / "train.log").unlink()
    (run / "train.log").symlink_to("/dev/full")
    outcome = resume(root, "full-log")
    assert outcome.status == 2
    assert "No space left on device" in outcome.error and "--resume" in outcome.error
    assert all_whole(run)


def test_a_model_too_large_for_the_memory(root, dataset):
    sizes = {"hidden_size": 10**7, "vocab_size": 10**7, "num_attention_heads": 1, "num_hidden_layers": 1}
    bert = {**sizes, "intermediate_size": 8, "max_position_embeddings": 64}
    outcome = train(write_config(root / "huge.json", dataset, bert_config=bert), root / "runs")
    assert outcome.status == 2
    assert "out of memory" in outcome.error and "[10000000,10000000]" in outcome.error
    assert "lower --global-batch.micro-batch-size, --max-seq-length" in outcome.error


def test_memory_that_runs_out_during_the_run(root, stopped, monkeypatch):
    run = copy_of(stopped, "memory")
    with at_step(monkeypatch, 14, lambda: np.ones((10**7, 10**7))):
        outcome = resume(root, "memory")
    assert outcome.status == 2
    assert "out of memory (Unable to allocate 728. TiB" in outcome.error and "--max-seq-length" in outcome.error
    assert all_whole(run)


def test_a_folder_that_cannot_be_written_to(root, dataset):
    (root / "file").write_text("in the way")
    config = write_config(root / "nowhere.json", dataset)
    assert "output_dir" in train(config, root / "file").error
    outcome = train(config, root / "runs", "--save-ckpt-path", str(root / "file"))
    assert outcome.status == 2 and "save_ckpt_path" in outcome.error
    assert not (root / "runs" / "nowhere").exists()


def test_a_data_file_that_shrinks_during_the_run(root, monkeypatch):
    data = write_dataset(root / "shrinking", records=2000)
    config = write_config(root / "shrinks.json", data, updates=100, **IN_ORDER)
    with at_step(monkeypatch, 10, lambda: os.truncate(data / "part-0.tfrecord", 50_000)):
        outcome = train(config, root / "runs")
    assert outcome.status == 2
    assert "part-0.tfrecord: record" in outcome.error and "cut off" in outcome.error
    assert all_whole(root / "runs" / "shrinks")


def test_a_data_file_that_is_gone_at_the_resume(root, dataset, stopped):
    moved = root / "less"
    shutil.copytree(dataset, moved)
    (moved / "part-1.tfrecord").unlink()
    copy_of(stopped, "less")
    arguments = ("--name", "less", "--resume", "--dataset-dir", str(moved))
    outcome = train(root / "stopped.json", root / "runs", *arguments)
    assert outcome.status == 2 and "dataset_dir" in outcome.error


def test_two_runs_in_one_folder(root, stopped, dataset):
    run = copy_of(stopped, "locked")
    before = state(run)
    with FolderLocks() as locks:
        locks.lock(run)
        outcome = resume(root, "locked")
        assert outcome.status == 2 and "another run is writing to it" in outcome.error
        assert f"process {os.getpid()}" in outcome.error
        # The same command without --resume is refused too.
        assert "another run" in train(root / "stopped.json", root / "runs", "--name", "locked").error
    assert all(np.array_equal(before[name], value) for name, value in state(run).items())

    shared = root / "shared"
    shared.mkdir()
    config = write_config(root / "sharing.json", dataset, save_ckpt_path=str(shared))
    with FolderLocks() as locks:
        locks.lock(shared)
        assert "another run is writing to it" in train(config, root / "runs").error


def test_checkpoints_of_another_run_are_not_written_over(root, stopped, dataset):
    config = write_config(root / "over.json", dataset)
    outcome = train(config, root / "runs", "--save-ckpt-path", str(stopped / "checkpoints"))
    assert outcome.status == 2 and "save_ckpt_path" in outcome.error
    assert all_whole(stopped)
