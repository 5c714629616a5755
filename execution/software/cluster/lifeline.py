"""Stops a process whose launcher has ended.

The launcher keeps one end of a pipe and passes the other to every process that it starts. Nothing is ever written: when
the launcher ends, even by SIGKILL, the system closes its end, and the processes read the end of the file. All then stop
as after SIGTERM, at the same step, with their state saved.

Imports no TensorFlow.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from typing import MutableMapping, Optional

from utilities.errors import print_error

LIFELINE = "PROCESS_LIFELINE"
SECONDS_TO_STOP = 45.0  # seconds from the signal to the forced end, as in the launcher
LAUNCHER_ENDED = "the launcher has ended, so this process stops, too"


def lifeline_variable(reader: int) -> str:
    """Return the environment variable that describes the inherited end of the pipe: file descriptor and inode.

    The inode distinguishes the pipe from another file with the same descriptor, which is possible if a program between
    the launcher and the process has closed the pipe.
    """
    return f"{reader}:{os.fstat(reader).st_ino}"


def watch_lifeline(
    environment: MutableMapping[str, str] = os.environ, patience: float = SECONDS_TO_STOP
) -> Optional[threading.Thread]:
    """Start a thread that stops this process when its launcher has ended, by SIGTERM and finally by force.

    The lifeline's variable is removed from the environment, so that child processes do not inherit it. Returns None if
    this process was not started by the launcher.
    """
    reader = _inherited(environment.pop(LIFELINE, ""))
    if reader is None:
        return None
    os.set_inheritable(reader, False)
    thread = threading.Thread(target=_watch, args=(reader, patience), name="lifeline", daemon=True)
    thread.start()
    return thread


def _inherited(lifeline: str) -> Optional[int]:
    """Return the file descriptor of the pipe; None if this process does not have it."""
    number, _, inode = lifeline.partition(":")
    try:
        status = os.fstat(int(number))
        return int(number) if stat.S_ISFIFO(status.st_mode) and status.st_ino == int(inode) else None
    except (OSError, ValueError):
        return None


def _watch(reader: int, patience: float) -> None:
    os.read(reader, 1)  # returns when the launcher has ended
    print_error(LAUNCHER_ENDED)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(patience)
    os._exit(128 + signal.SIGTERM)
