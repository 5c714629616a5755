"""The launcher, with small programs instead of training."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from execution import launch
from execution.software.cluster.lifeline import LIFELINE, watch_lifeline
from tests import ROOT
from tests.support.command_errors import assert_refused

PROGRAM = """
import json, os, signal, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
# One write per line, so that lines of different processes do not mix where Python is unbuffered.
os.write(1, f"task {task} arguments {' '.join(sys.argv[1:])}\\n".encode())
os.write(2, f"warning of {task}\\n".encode())

def wait_for_failure():
    # In processes other than 1, wait until the launcher has reported that process 1 has ended.
    errors = os.path.join(os.path.dirname(os.path.abspath(__file__)), "errors")
    while task != 1 and "the others stop" not in open(errors).read():
        time.sleep(0.05)

"""


def write(folder: Path, text: str) -> str:
    path = folder / "program.py"
    path.write_text(PROGRAM + text, encoding="utf-8")
    return str(path)


def started(program: str, processes: int, *flags: str) -> tuple[subprocess.CompletedProcess, str]:
    """Run a program by the launcher; return the ended process and its standard error, a file next to the program."""
    launcher = [sys.executable, "-m", "execution.launch", "--processes", str(processes)]
    command = [*launcher, *flags, "--", program, "--x", "1"]
    path = Path(program).with_name("errors")
    with open(path, "a", encoding="utf-8") as errors:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, timeout=60)
    return done, path.read_text(encoding="utf-8")


def test_processes_get_their_index_and_their_lines_its_prefix(tmp_path):
    done, errors = started(write(tmp_path, ""), 3, "--threads-per-replica", "5")
    assert done.returncode == 0, errors
    flags = "arguments --x 1 --execution.threads 5"
    assert sorted(done.stdout.splitlines()) == [f"[1] task 1 {flags}", f"[2] task 2 {flags}", f"task 0 {flags}"]
    assert sorted(errors.splitlines()) == ["[1] warning of 1", "[2] warning of 2", "warning of 0"]


@pytest.mark.parametrize(
    ("end", "status", "named"),
    [
        ("sys.exit(7)", 7, "process 1 ended with status 7; the others stop"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 2, "process 1 was ended by SIGKILL"),
    ],
)
def test_the_first_failure_is_the_exit_status_and_is_named(tmp_path, end, status, named):
    text = f"wait_for_failure()\nif task == 1: {end}\nsys.exit(2 * task)"
    done, errors = started(write(tmp_path, text), 3)
    assert done.returncode == status and named in errors


def test_processes_that_do_not_stop_are_killed(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(launch, "SECONDS_TO_STOP", 0.5)
    begun = time.monotonic()
    assert launch.run([write(tmp_path, "time.sleep(60 * task); sys.exit(3)")], 2) == 3
    assert time.monotonic() - begun < 30
    assert "process 1 does not stop and is killed" in capfd.readouterr().err


def test_signals_reach_all_processes(tmp_path):
    text = f"""
def stop(number, frame):
    open(os.path.join({str(tmp_path)!r}, f"stopped-{{task}}"), "a").write("x"); sys.exit(0)
signal.signal(signal.SIGTERM, stop); open(os.path.join({str(tmp_path)!r}, f"ready-{{task}}"), "w"); time.sleep(60)
"""
    program = write(tmp_path, text)

    def end_it() -> None:
        while len(list(tmp_path.glob("ready-*"))) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    threading.Thread(target=end_it, daemon=True).start()
    assert launch.run([program], 2) == 0
    assert [path.read_text() for path in sorted(tmp_path.glob("stopped-*"))] == ["x", "x"]
    assert signal.getsignal(signal.SIGTERM) == before


def test_processes_end_when_the_launcher_is_killed(tmp_path):
    text = f"""
import contextlib
import fcntl
import io
sys.path.insert(0, {str(ROOT)!r})
from execution.software.cluster.lifeline import LIFELINE, watch_lifeline

def stop(number, frame):
    if task == 0:
        open("stopped", "w").close(); sys.exit(0)
    open("asked", "w").close()

os.chdir({str(tmp_path)!r})
lock = open(f"alive-{{task}}", "w"); fcntl.flock(lock, fcntl.LOCK_EX)
signal.signal(signal.SIGTERM, stop); assert watch_lifeline(patience=0.5) is not None and LIFELINE not in os.environ
os.rename(lock.name, f"ready-{{task}}")
while True:
    time.sleep(60)
"""
    command = [sys.executable, "-m", "execution.launch", "--processes", "2", "--", write(tmp_path, text)]
    launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    while len(list(tmp_path.glob("ready-*"))) < 2:
        assert launcher.poll() is None
        time.sleep(0.05)
    launcher.kill()
    launcher.wait()
    for task in range(2):  # the lock is free when the process is gone, whatever its parent is now
        with open(tmp_path / f"ready-{task}", "w") as lock:
            assert freed(lock, seconds=30), f"{task} goes on"
    assert (tmp_path / "stopped").exists() and (tmp_path / "asked").exists()


def freed(lock: Any, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.05)
    return False


@pytest.mark.parametrize("lifeline", ["", "987654:1"])
def test_nothing_is_watched_without_a_pipe_of_the_launcher(lifeline):
    assert watch_lifeline({LIFELINE: lifeline} if lifeline else {}) is None


def test_threads_are_shared_unless_the_command_sets_them(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(9)))
    assert launch.with_threads(["p"], 2, None)[1:] == ["--execution.threads", "4"]
    assert launch.with_threads(["p"], 20, None)[1:] == ["--execution.threads", "1"]
    assert launch.with_threads(["p", "--execution.threads=3"], 2, None) == ["p", "--execution.threads=3"]


def test_gpus_are_shared(monkeypatch):
    shares = launch.gpu_shares(2, {"CUDA_VISIBLE_DEVICES": "4,5,6,7"})
    assert shares == [{"CUDA_VISIBLE_DEVICES": "4,5"}, {"CUDA_VISIBLE_DEVICES": "6,7"}]
    for none in ("", "-1", "-1,0,1"):  # as CUDA reads it
        assert launch.gpu_shares(2, {"CUDA_VISIBLE_DEVICES": none}) == [{}, {}]
    with pytest.raises(launch.UserError, match="only 1 GPUs"):
        launch.gpu_shares(2, {"CUDA_VISIBLE_DEVICES": "0"})


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--processes", "0", "--", "x.py"], "--processes 0"),
        (["--processes", "2"], "no program"),
        (["--processes", "1", "--", "no-such-program"], "no-such-program"),
    ],
)
def test_mistakes_are_one_line(arguments, names, capsys):
    assert_refused(launch.main(arguments), capsys.readouterr(), names)


def test_a_process_does_not_wait_for_output_that_cannot_be_printed(tmp_path):
    """It would when its pipe is full: after the reader of all output has gone, or in a locale without a character."""
    text = "é\n".encode() * 50_000
    printed = tmp_path / "printed"
    with open(printed, "w", encoding="ascii") as ascii_only, open("/dev/full", "w", encoding="utf-8") as full:
        for sink in (ascii_only, full):
            stream = io.BytesIO(text)
            launch.print_lines(stream, sink, 1).join()
            assert stream.tell() == len(text)
        with contextlib.suppress(OSError):
            full.close()
    assert printed.read_text(encoding="ascii").startswith("[1] ?\n[1] ?\n")
