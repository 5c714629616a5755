"""Ends a process whose launcher is gone.

The launcher keeps one end of a pipe and gives the other to every process that it starts. Nobody writes to it: when the
launcher ends, however it does, SIGKILL included, the system closes its end, and the others read the end of the file.
All then stop as if they had been asked to, at the same step, with what they did saved.

Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
import time
from typing import MutableMapping, Optional

LIFELINE = "REPLICA_LIFELINE"
PATIENCE = 45.0  # seconds between the wish to stop and the end, as the launcher itself has it
GONE = "the launcher has ended, so this replica stops, too"


def lifeline_of(reader: int) -> str:
    """What the environment of a started process says of the pipe's end that it inherits: its number and its inode.

    The inode tells that pipe from anything else that may have the number by then, as where a program between the
    launcher and the process has closed what it did not know.
    """
    return f"{reader}:{os.fstat(reader).st_ino}"


def watch_lifeline(
    environment: MutableMapping[str, str] = os.environ, patience: float = PATIENCE
) -> Optional[threading.Thread]:
    """From now on, stop this process when its launcher has ended: by SIGTERM, and at once when that was in vain.

    Args:
        environment: of the process; it loses the variable, which is for no process that this one starts.
        patience: seconds that the process has to save and end.

    Returns:
        The thread that watches; None where no launcher has started this process.
    """
    reader = _inherited(environment.pop(LIFELINE, ""))
    if reader is None:
        return None
    os.set_inheritable(reader, False)
    thread = threading.Thread(target=_watch, args=(reader, patience), name="lifeline", daemon=True)
    thread.start()
    return thread


def _inherited(lifeline: str) -> Optional[int]:
    """The pipe's end, where this process has it."""
    number, _, inode = lifeline.partition(":")
    try:
        found = os.fstat(int(number))
        return int(number) if stat.S_ISFIFO(found.st_mode) and found.st_ino == int(inode) else None
    except (OSError, ValueError):
        return None


def _watch(reader: int, patience: float) -> None:
    os.read(reader, 1)  # returns when nobody is left who could write
    with contextlib.suppress(OSError):  # the launcher may have been the one who read what this process prints
        os.write(2, f"\n{GONE}\n".encode())
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(patience)
    os._exit(128 + signal.SIGTERM)
