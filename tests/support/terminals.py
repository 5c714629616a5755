"""Runs processes on a new terminal, on which a program could ask questions."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from tests import ROOT

SECONDS = 600


class Ended(NamedTuple):
    status: int
    shown: str


def on_terminal(arguments: list[str], home: Path, **variables: str) -> Ended:
    """Run Python on a new terminal, without any login; fail if it does not end by itself."""
    hidden = ("WANDB", "NETRC", "HOME", "XDG")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    environment.update(HOME=str(home), TF_CPP_MIN_LOG_LEVEL="3", PYTHONPATH=str(ROOT), **variables)
    ours, theirs = pty.openpty()
    shown: list[bytes] = []
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    reader = threading.Thread(target=read_all, args=(ours, shown), daemon=True)
    reader.start()
    try:
        status = process.wait(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise AssertionError(f"still running after {SECONDS} s: {b''.join(shown)!r}") from None
    reader.join(timeout=10)
    return Ended(status, b"".join(shown).decode("utf-8", "replace"))


def read_all(descriptor: int, shown: list[bytes]) -> None:
    with contextlib.suppress(OSError):  # a terminal reports in this way that its other side is gone
        while block := os.read(descriptor, 1 << 16):
            shown.append(block)
