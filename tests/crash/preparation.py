"""Data preparation that is killed with SIGKILL at random moments and started again by the same command.

In the end, the data set has the same bytes as that of an uninterrupted command.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.crash.training import PATIENCE, ROOT, sleeps
from tests.support.runs import content, write_text

DUMPED_BYTES = 2000


def crash(folder: Path, kills: int, documents: int, seed: int, log: Callable[[str], None] = print) -> None:
    """Kill preparations ``kills`` times; compare each one that ends in between, and start the next."""
    chance = random.Random(seed)
    folder.mkdir(exist_ok=True)
    text = write_text(folder / "text.txt", documents)
    began = time.monotonic()
    finish(text, folder / "whole")
    seconds = time.monotonic() - began
    whole = content(folder / "whole")
    number = done = 0
    while done < kills:
        number += 1
        killed = folder / f"killed-{number}"
        # Sometimes only the main process is killed, and its workers are left.
        while done < kills and kill_once(text, killed, chance.uniform(0, seconds * 0.7), chance.random() < 0.7):
            done += 1
            log(f"kill {done:2d} of preparation; {len(content(killed))} files are there")
        finish(text, killed)
        resumed = content(killed)
        assert resumed.keys() == whole.keys(), resumed.keys() ^ whole.keys()
        assert [name for name in whole if resumed[name] != whole[name]] == []
        log(f"{killed.name} is the data set that nobody killed, byte for byte")


def start(text: Path, output: Path) -> subprocess.Popen:
    """Start the whole preparation, its workers in a process group of their own."""
    command = [
        sys.executable, "-m", "data_utils.text", "--text", str(text), "--output", str(output), "--workers", "2",
        "--vocab-size", "200", "--max-seq-length", "32", "--max-predictions", "5", "--duplicate-factor", "4",
    ]  # fmt: skip
    with open(f"{output}.out", "ab") as printed:
        return subprocess.Popen(command, cwd=ROOT, stdout=printed, stderr=printed, start_new_session=True)


def kill_once(text: Path, output: Path, seconds: float, all_processes: bool) -> bool:
    """Start or resume a preparation, and kill it; return False if it ended first."""
    process = start(text, output)
    running = sleeps(process, seconds)
    if running:
        (os.killpg if all_processes else os.kill)(process.pid, signal.SIGKILL)
    assert process.wait(PATIENCE) == (-signal.SIGKILL if running else 0), printed(output)
    return running


def finish(text: Path, output: Path) -> None:
    assert start(text, output).wait(PATIENCE) == 0, printed(output)


def printed(output: Path) -> str:
    """Return the end of what the command printed."""
    return Path(f"{output}.out").read_text(errors="replace")[-DUMPED_BYTES:]
