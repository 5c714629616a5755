"""The archive of compiled programs never ends a run, and never returns a wrong program."""

from __future__ import annotations

import dataclasses
import errno
import logging
import os
import time
from pathlib import Path

import pytest

from execution.interface import ExecutionOptions
from execution.software import compiled_programs
from execution.software.compiled_programs import CompiledPrograms, archive_name, load_programs, take_programs
from keras_extensions.backend import PROGRAMS, tf, with_program_folder

PROGRAM, OTHER = b"machine code" * 100, b"more of it" * 100
OWN_FLAGS = f"--tf_xla_persistent_cache_directory={PROGRAMS} --tf_xla_persistent_cache_device_types=CPU"


@pytest.fixture(autouse=True)
def empty_memory():
    take_programs()
    yield
    take_programs()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive of one program, as a run writes it."""
    path = tmp_path / "compiled" / "a.programs"
    run(path, {"a.pb": PROGRAM})
    assert path.exists()
    return path


def run(path: Path, compiled: dict[str, bytes]) -> tuple[dict[str, bytes], str]:
    """Return the programs that a run loads, and its message after it has ``compiled`` further ones."""
    programs = CompiledPrograms(path)
    programs.load()
    loaded = take_programs()
    tf.io.gfile.makedirs(PROGRAMS)
    for name, program in {**loaded, **compiled}.items():
        with tf.io.gfile.GFile(f"{PROGRAMS}/{name}", "wb") as file:
            file.write(program)
    message = programs.save()
    assert not take_programs(), "the memory is freed"
    return loaded, message


def test_programs_return_and_new_ones_are_added(archive):
    assert run(archive, {}) == ({"a.pb": PROGRAM}, "with the compiled programs of an earlier run")
    assert run(archive, {"b.pb": OTHER})[1] == "with compilation; the programs are kept for later runs"
    assert run(archive, {})[0] == {"a.pb": PROGRAM, "b.pb": OTHER}
    assert (archive.parent.stat().st_mode & 0o777) == 0o700


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[:20],
        lambda content: content[:-40] + bytes([content[-40] ^ 1]) + content[-39:],
        lambda content: bytes(len(content)),
    ],
)
def test_damaged_archive_is_written_again(archive, damage, caplog):
    archive.write_bytes(damage(archive.read_bytes()))
    assert run(archive, {"a.pb": PROGRAM})[0] == {}
    assert "a.programs is damaged" in caplog.text
    assert run(archive, {})[0] == {"a.pb": PROGRAM}


@pytest.mark.parametrize("part", ["folder", "file"])
def test_archive_that_others_may_write_is_not_loaded(archive, part, caplog):
    path = archive if part == "file" else archive.parent
    path.chmod(0o770)
    assert run(archive, {})[0] == {}
    assert f"others may write to {path}" in caplog.text
    if part == "folder":
        assert run(archive, {"b.pb": OTHER})[1] == "", "nor written to"


def test_archive_of_another_user_is_not_loaded(archive, monkeypatch, caplog):
    monkeypatch.setattr(os, "getuid", lambda: archive.stat().st_uid + 1)
    assert run(archive, {})[0] == {}
    assert "belongs to another user" in caplog.text


def test_full_disk_is_a_warning(archive, monkeypatch, caplog):
    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(compiled_programs, "write_atomically", full)
    assert run(archive, {"b.pb": OTHER})[1] == ""
    assert "not kept: [Errno 28] No space left" in caplog.text


def test_unusable_folder_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("no folder")
    assert run(tmp_path / "file" / "a.programs", {"a.pb": PROGRAM}) == ({}, "")
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_concurrent_runs_leave_the_archive_of_one(tmp_path):
    path = tmp_path / "a.programs"
    tmp_path.chmod(0o700)
    first = CompiledPrograms(path)
    first.load()
    run(path, {"b.pb": OTHER})  # the second starts later and ends first
    with tf.io.gfile.GFile(f"{PROGRAMS}/a.pb", "wb") as file:
        file.write(PROGRAM)
    first.save()
    assert run(path, {})[0] == {"a.pb": PROGRAM}


def test_files_of_killed_runs_are_removed_later(archive):
    old, new = (archive.with_name(f".a.programs.host-{number}.tmp") for number in (1, 2))
    others = archive.with_name("notes.tmp")  # the folder may be one of the user's
    for path in (old, new, others):
        path.write_bytes(archive.read_bytes()[:50])
    for path in (old, others):
        os.utime(path, (time.time() - 7200,) * 2)
    assert run(archive, {})[0] == {"a.pb": PROGRAM}
    assert not old.exists() and new.exists() and others.exists(), (
        "the newer one may be that of a run that is writing it"
    )


def test_oldest_archives_are_removed_first(archive, monkeypatch):
    paths = [archive.with_name(f"{number}.programs") for number in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(1000))
        os.utime(path, (number, number))
    monkeypatch.setattr(compiled_programs, "ALL", archive.stat().st_size + 2500)
    assert run(archive, {})[0] == {"a.pb": PROGRAM}
    assert [path.exists() for path in paths] == [False, False, True, True]


def test_too_large_programs_are_not_kept(archive, monkeypatch, caplog):
    monkeypatch.setattr(compiled_programs, "LARGEST", len(OTHER))
    assert run(archive, {"b.pb": OTHER})[1] != "", "without the old ones, the new one is small enough"
    assert run(archive, {"a.pb": PROGRAM})[1] == ""
    assert "the limit is" in caplog.text


def test_archive_name_depends_on_everything_that_changes_programs(monkeypatch):
    options = ExecutionOptions(micro_batch_size=8)
    names = [
        archive_name(options, "one processor"),
        archive_name(options, "another processor"),
        archive_name(dataclasses.replace(options, threads=1), "one processor"),
    ]
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    names.append(archive_name(options, "one processor"))
    assert len(set(names)) == len(names)
    same = dataclasses.replace(options, seed=3, compile_only=True, executable_cache="x")
    assert archive_name(same, "one processor") == names[-1]


def test_programs_are_not_kept_where_it_is_unsafe(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled_programs, "KEEPS_PROGRAMS", True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert load_programs(ExecutionOptions()) is None, "not requested"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert load_programs(ExecutionOptions(executable_cache="auto")) is None, "no cache folder"
    monkeypatch.setattr(compiled_programs, "processor_identity", lambda: "")
    assert load_programs(ExecutionOptions(executable_cache=str(tmp_path))) is None, "unknown processor"


def test_flags_of_the_user_are_kept():
    assert with_program_folder("") == OWN_FLAGS
    assert with_program_folder("--tf_xla_auto_jit=2") == f"--tf_xla_auto_jit=2 {OWN_FLAGS}"
    for flags in (OWN_FLAGS, "--tf_xla_persistent_cache_directory=/mine", "/etc/flags"):
        assert with_program_folder(flags) == flags
