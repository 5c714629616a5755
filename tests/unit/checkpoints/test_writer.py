"""Checkpoints are written atomically and in the background, and rotated."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from checkpoints.folder import clear_unfinished, damage, folder_name, read_description, set_aside, step_folders
from checkpoints.writer import NICENESS, CheckpointWriter, Rotation, rewrite_description, rotate, write_checkpoint
from tests.support.run_folders import write_step
from utilities.errors import UserError


def write(folder: Path, step: int, run: str = "mine") -> Path:
    return write_step(folder, step, {"run": run})


def steps(folder: Path):
    return [read_description(path)["step"] for path in step_folders(folder)]


@pytest.mark.parametrize(
    "keep_last, keep_every, left",
    [
        (None, None, [30, 60, 90, 120, 150, 180]),
        (1, None, [180]),
        (3, None, [120, 150, 180]),
        # Of every 100 updates, the first checkpoint at or after their beginning: 120 for 100.
        (1, 100, [120, 180]),
        (2, 60, [60, 120, 150, 180]),
    ],
)
def test_rotation_after_every_checkpoint(tmp_path, keep_last, keep_every, left):
    for step in range(30, 181, 30):
        write(tmp_path, step)
        rotate(tmp_path, "mine", Rotation(keep_last, keep_every))
    assert steps(tmp_path) == left


def test_checkpoints_of_another_run_and_strange_folders_stay(tmp_path):
    write(tmp_path, 10, run="other")
    (tmp_path / "step-mine").mkdir()
    damaged = write(tmp_path, 20)
    (damaged / "checkpoint.json").write_text("{")
    for step in (30, 40):
        write(tmp_path, step)
        rotate(tmp_path, "mine", Rotation(1))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-00000010", "step-00000020", "step-00000040", "step-mine"
    ]  # fmt: skip


def test_steps_beyond_eight_digits_are_ordered_as_numbers(tmp_path):
    for step in (99_999_999, 100_000_000):
        write(tmp_path, step)
    assert steps(tmp_path) == [99_999_999, 100_000_000]


def test_temporary_files_of_a_killed_writer_are_removed(tmp_path):
    whole = write(tmp_path, 10)
    (tmp_path / ".writing-step-00000020").mkdir()
    (tmp_path / ".writing-step-00000020" / "weights.index").write_text("half")
    (tmp_path / ".writing-step-00000010.json").write_text("half")
    # Killed between the two renames that replace a checkpoint, and killed after them.
    whole.rename(tmp_path / ".replaced-step-00000010")
    (tmp_path / ".replaced-step-00000005").mkdir()
    write(tmp_path, 5)
    clear_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000005", "step-00000010"]
    assert damage(whole) is None


def test_rewritten_facts_stay_verified(tmp_path):
    folder = write(tmp_path, 10)
    rewrite_description(folder, {"skipped": [3]})
    description = read_description(folder)
    assert description["skipped"] == [3] and description["run"] == "mine" and description["step"] == 10
    assert damage(folder) is None
    text = (folder / "checkpoint.json").read_text()
    (folder / "checkpoint.json").write_text(text.replace('"step": 10', '"step": 11'))
    assert "SHA-256" in damage(folder)


def test_a_checkpoint_set_aside_gets_its_own_name(tmp_path):
    names = [set_aside(write(tmp_path, 10), "damaged").name for _ in range(2)]
    assert names == ["damaged-step-00000010", "damaged-step-00000010-2"]
    assert step_folders(tmp_path) == []


class SlowCopy:
    """Replaces a copy, and writes only after ``go`` is set."""

    def __init__(self, error=None):
        self.go, self.error, self.description = threading.Event(), error, {}

    def write_files(self, folder):
        assert self.go.wait(20)
        (folder / "weights.index").write_text("weights")
        if self.error:
            raise self.error


class Copies:
    """Replaces a state, and returns one slow copy after the other."""

    def __init__(self, *copies):
        self.copies = list(copies)

    def copy(self):
        return self.copies.pop(0)


def writer_of(folder, *copies, **options):
    return CheckpointWriter(folder, Copies(*copies), lambda step: {"step": step}, "mine", Rotation(), **options)


def test_training_continues_during_a_write_and_the_next_save_waits(tmp_path):
    first, second, written = SlowCopy(), SlowCopy(), []
    writer = writer_of(tmp_path, first, second, on_written=written.append)
    writer.save(1)  # does not wait for the disk
    writer.check()
    assert written == []
    threading.Timer(0.2, first.go.set).start()
    started = time.monotonic()
    writer.save(2)
    assert time.monotonic() - started > 0.1
    assert written == [tmp_path / folder_name(1)]
    second.go.set()
    writer.wait()
    assert written == [tmp_path / folder_name(1), tmp_path / folder_name(2)]
    writer.close()


def test_a_save_that_is_waited_for_is_written_at_normal_priority(tmp_path):
    """It is written on another thread, because the calling one may be in a strategy's scope."""
    threads = []

    class Copy(SlowCopy):
        def write_files(self, folder):
            thread = threading.get_native_id()
            threads.append((thread, os.getpriority(os.PRIO_PROCESS, thread)))

    written, own = [], os.getpriority(os.PRIO_PROCESS, 0)
    writer = writer_of(tmp_path, Copy(), Copy(), on_written=written.append)
    writer.save(1)
    writer.save_now(2)
    assert written == [tmp_path / folder_name(1), tmp_path / folder_name(2)]  # on return
    (background, low), (other, priority) = threads
    assert threading.get_native_id() not in (background, other) and priority == own
    if sys.platform == "linux":
        assert low == max(NICENESS, own)
    writer.close()


def test_an_error_of_the_thread_is_raised_once(tmp_path):
    copy = SlowCopy(UserError("save_ckpt_path: no space"))
    writer = writer_of(tmp_path, copy)
    writer.save(1)
    copy.go.set()
    with pytest.raises(UserError, match="no space"):
        while True:
            writer.check()
    writer.wait()
    writer.close()


def test_a_failed_write_is_one_line_and_leaves_no_checkpoint(tmp_path):
    copy = SlowCopy(OSError(28, "No space left on device"))
    copy.go.set()
    with pytest.raises(UserError, match="save_ckpt_path"):
        write_checkpoint(copy, tmp_path, 3, {})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UserError, match="save_ckpt_path: cannot write") as caught:
        write(tmp_path / "file", 1)
    assert "\n" not in str(caught.value)


def test_a_file_system_that_flushes_no_folders(tmp_path, monkeypatch):
    """As shared folders of virtual machines and of Windows are mounted; a file that is not flushed is an error."""
    flush, refused = os.fsync, [stat.S_ISDIR]

    def fsync(descriptor):
        if any(is_kind(os.fstat(descriptor).st_mode) for is_kind in refused):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    copy = SlowCopy()
    copy.go.set()
    path = write_checkpoint(copy, tmp_path, 1, {})
    assert (path / "checkpoint.json").exists() and set_aside(path, "damaged").exists()
    refused.append(stat.S_ISREG)
    with pytest.raises(UserError, match="Invalid argument"):
        write_checkpoint(copy, tmp_path, 2, {})
