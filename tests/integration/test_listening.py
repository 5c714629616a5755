"""Commands with several processes open no sockets that other machines can reach, as seen while they run."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import ROOT
from tests.support.runs import (
    write_config,  # room: cluster
    write_dataset,  # room: cluster
    write_text,
)

pytestmark = pytest.mark.slow

PATIENCE = 300  # seconds, for a busy machine
PIDFD_GETFD = 438  # the number of this system call, which Python does not offer
LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}

# Prepares data with workers, and keeps them running after the work is done.
KEEPING_WORKERS = """
import sys, time
from concurrent.futures import ProcessPoolExecutor
from data_utils.text import sources
from data_utils.text.__main__ import main
def stay(*_, **__):
    open({mark!r}, "w").close()
    time.sleep(600)

sources.SMALLEST_SHARD = sources.LARGEST_SHARD = 4000
if __name__ == "__main__":
    ProcessPoolExecutor.shutdown = stay
    sys.exit(main())
"""
PREPARATION = [
    *("--vocab-size", "200", "--max-seq-length", "32", "--max-predictions", "5", "--workers", "2"),
    *("--unit-megabytes", "0.02"),
]


def listeners(process: int) -> Iterator[tuple[str, str]]:
    """Yield the address of each socket on which a process accepts connections, and the device that it is bound to."""
    system = ctypes.CDLL(None, use_errno=True)
    handle = os.pidfd_open(process)
    try:
        for link in Path(f"/proc/{process}/fd").iterdir():
            if not link.is_socket():
                continue
            number = system.syscall(PIDFD_GETFD, handle, int(link.name), 0)
            if number < 0 and ctypes.get_errno() == errno.EBADF:  # it was closed meanwhile
                continue
            assert number >= 0, os.strerror(ctypes.get_errno())
            with socket.socket(fileno=number) as one:
                internet = one.family in (socket.AF_INET, socket.AF_INET6)
                if internet and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    device = one.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).strip(b"\0").decode()
                    yield one.getsockname()[0], device
    finally:
        os.close(handle)


def preparation(folder: Path) -> list[str]:
    script, text = folder / "command.py", write_text(folder / "text.txt")
    script.write_text(KEEPING_WORKERS.format(mark=str(folder / "mark")))
    return [str(script), "--text", str(text), "--output", str(folder / "out"), *PREPARATION]


def launcher(folder: Path) -> list[str]:  # room: cluster
    config = write_config(folder / "config.json", write_dataset(folder / "data"), updates=100_000)
    line = ["run_pretraining.py", "--config", str(config), "--output-dir", str(folder), "--name", "mark"]
    return ["-m", "execution.launch", "--processes", "2", "--", *line]


@pytest.mark.skipif(not hasattr(os, "pidfd_open") or not Path("/proc/self/fd").exists(), reason="needs Linux")
@pytest.mark.parametrize(
    "command, servers",
    [
        (preparation, 0),
        (launcher, 2),  # room: cluster
    ],
)
def test_no_socket_can_be_reached_from_other_machines(command, servers, tmp_path):
    errors = tmp_path / "errors.txt"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open(errors, "w", encoding="utf-8") as stream:
        started = subprocess.Popen(
            [sys.executable, *command(tmp_path)], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=stream
        )
    try:
        until = time.monotonic() + PATIENCE
        while not (tmp_path / "mark").exists() and time.monotonic() < until:
            assert started.poll() is None, errors.read_text()
            time.sleep(0.05)
        main = psutil.Process(started.pid)
        processes = [main, *main.children(recursive=True)]
        assert len(processes) >= 3, "it has started no workers"
        result = [listener for process in processes for listener in listeners(process.pid)]
    finally:
        started.kill()
        started.wait()
    assert all(address in LOOPBACK or device == "lo" for address, device in result), result
    assert len(result) == servers and "can be reached" not in errors.read_text()
    gone_by = time.monotonic() + 60
    while (left := [process for process in processes if is_alive(process)]) and time.monotonic() < gone_by:
        time.sleep(0.05)
    for process in left:
        process.kill()
    assert not left, "they outlive the command"


def is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
