"""A fault during a run gives one clear line and damages nothing; corrupt records may be skipped."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from checkpoints.folder import damage
from tests.support.record_samples import write_samples
from tests.support.runs import (
    Outcome,
    assert_same_run,
    at_step,
    checkpoints,
    copy_of,
    events,
    files_up_to,
    killed_at,
    logged,
    metrics,
    prepare_dataset,
    read_lines,
    state,
    terminate,
    train,
    trained,
    write_config,
    write_dataset,
    write_text,
    write_text_config,
)
from training.run_folder import FolderLocks

pytestmark = pytest.mark.slow

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


def test_a_diverged_run_goes_back_and_leaves_out_the_batches_at_fault(root, poisoned, without, monkeypatch):
    """Step 5 diverges; its batch and the one before are left out, also after kills.

    The run first stops, which is the default, and is then resumed with rewinds. It is killed right after the rewind,
    before any new checkpoint, and once more.
    """
    config = write_config(root / "rewind.json", poisoned, updates=7, **IN_ORDER)
    run, name = root / "runs" / "rewind", ("--name", "rewind")
    outcome = train(config, root / "runs", *name, status=2)
    assert "at step 5" in outcome.error and "on_divergence" in outcome.error
    assert checkpoints(run) == ["step-00000002", "step-00000004"]
    rewind = (*name, "--resume", "--on-divergence", "rewind")
    assert "max_rewinds" in train(config, root / "runs", *rewind, "--max-rewinds", "0", status=2).error

    # The checkpoint of step 4 is not trusted.
    killed_at(monkeypatch, 3, config, root / "runs", *rewind)
    log = (run / "train.log").read_text(encoding="utf-8")
    assert "at step 5: back to step 2, leaving out the global batches 3, 4 (rewind 1 of at most 3)" in log
    assert "diverged-step-00000004" in checkpoints(run)
    (entry,) = (event for event in read_lines(run / "history.jsonl") if event["event"] == "rewind")
    assert (entry["step"], entry["to"], entry["skipped"]) == (5, 2, [3, 4])

    killed_at(monkeypatch, 6, config, root / "runs", *rewind)
    assert "back to step" not in train(config, root / "runs", *rewind, status=0).errors
    assert events(run).count("rewind") == 1
    assert_same_run(run, without)
    assert [period["step"] for period in logged(run)] == list(range(1, 8))


def test_a_run_that_keeps_diverging_ends(root, dataset):
    rate = {"optimizer_opts": {"name": "AdamW", "learning_rate": {"max_learning_rate": 1e30}}}
    config = write_config(root / "hopeless.json", dataset, on_divergence="rewind", max_rewinds=2, **rate)
    outcome = train(config, root / "runs", status=2)
    assert "after 2 rewinds" in outcome.error and "max_learning_rate" in outcome.error


@pytest.fixture(scope="module")
def stopped(root, dataset) -> Path:
    config = write_config(root / "stopped.json", dataset)
    with pytest.MonkeyPatch.context() as patch, at_step(patch, 10, terminate):
        train(config, root / "runs", status=128 + signal.SIGTERM)
    return root / "runs" / "stopped"


def resume(root: Path, name: str, status: int = 2) -> Outcome:
    return train(root / "stopped.json", root / "runs", "--name", name, "--resume", status=status)


def all_whole(run: Path) -> bool:
    return all(damage(run / "checkpoints" / name) is None for name in checkpoints(run))


def test_a_run_resumes_after_a_full_disk_and_after_too_little_memory(root, stopped, monkeypatch):
    run = copy_of(stopped, "full")
    with files_up_to(20_000):
        outcome = resume(root, "full")
    assert "save_ckpt_path: cannot write" in outcome.error and "(File too large); free space" in outcome.error
    assert checkpoints(run) == checkpoints(stopped) and all_whole(run)
    assert not list((run / "checkpoints").glob(".writing-*"))

    with contextlib.ExitStack() as limits, at_step(monkeypatch, 14, lambda: limits.enter_context(files_up_to(1))):
        outcome = resume(root, "full")
    assert "File too large" in outcome.error and "--name full --resume" in outcome.error
    assert all_whole(run)

    with at_step(monkeypatch, 18, lambda: np.ones((10**7, 10**7))):
        outcome = resume(root, "full")
    assert "out of memory (Unable to allocate 728. TiB" in outcome.error and "--max-seq-length" in outcome.error
    assert all_whole(run)
    resume(root, "full", status=0)


def test_a_disk_too_full_for_the_log(root, stopped):
    run = copy_of(stopped, "full-log")
    (run / "train.log").unlink()
    (run / "train.log").symlink_to("/dev/full")
    outcome = resume(root, "full-log")
    assert "No space left on device" in outcome.error and "--resume" in outcome.error
    assert all_whole(run)


def test_a_model_too_large_for_the_memory(root, dataset):
    sizes = {"hidden_size": 10**7, "vocab_size": 10**7, "num_attention_heads": 1, "num_hidden_layers": 1}
    bert = {**sizes, "intermediate_size": 8, "max_position_embeddings": 64}
    outcome = train(write_config(root / "huge.json", dataset, bert_config=bert), root / "runs", status=2)
    assert "out of memory" in outcome.error and "[10000000,10000000]" in outcome.error
    assert "lower --global-batch.micro-batch-size, --max-seq-length" in outcome.error


def test_a_folder_that_cannot_be_written_to(root, dataset):
    (root / "file").write_text("in the way")
    config = write_config(root / "nowhere.json", dataset)
    assert "output_dir" in train(config, root / "file").error
    assert "save_ckpt_path" in train(config, root / "runs", "--save-ckpt-path", str(root / "file"), status=2).error
    assert not (root / "runs" / "nowhere").exists()


def test_two_runs_in_one_folder(root, stopped, dataset):
    run = copy_of(stopped, "locked")
    before = state(run)
    with FolderLocks() as locks:
        locks.lock(run)
        outcome = resume(root, "locked")
        assert "another run is writing to it" in outcome.error and f"process {os.getpid()}" in outcome.error
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
    given = ("--save-ckpt-path", str(stopped / "checkpoints"))
    assert "save_ckpt_path" in train(config, root / "runs", *given, status=2).error
    assert all_whole(stopped)


@pytest.fixture(scope="module")
def corrupt(root) -> Path:
    folder = prepare_dataset(root / "corrupt", write_text(root / "text.txt", documents=20))
    path = sorted(folder.glob("*.tfrecord"))[0]
    data = bytearray(path.read_bytes())
    for line in path.with_suffix(".index").read_text().splitlines()[3:5]:
        data[int(line.split()[0]) + 40] ^= 1
    path.write_bytes(data)
    return folder


def test_skipped_records_are_counted_in_the_report(corrupt, tmp_path):
    config = write_text_config(tmp_path / "skip.json", total_num_train_samples=None, num_epochs=1)
    arguments = ("--dataset-dir", str(corrupt), "--data.on-corrupt", "skip")
    run = trained(config, tmp_path, *arguments)
    assert metrics(run)[-1]["step"] == metrics(run)[-1]["total_steps"]
    assert "since the run was last started: corrupt_records: 2." in (run / "report.html").read_text()
    history = read_lines(run / "history.jsonl")
    assert [event["corrupt_records"] for event in history if "corrupt_records" in event][-1] == 2
    assert (run / "train.log").read_text().count("record skipped, as data.on_corrupt says") == 2
    few = train(config, tmp_path, *arguments, "--data.max-corrupt-records", "1", status=2)
    assert "2 corrupt records, more than data.max_corrupt_records 1 allows" in few.errors
