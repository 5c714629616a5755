"""The errors that end a run with a message instead of a traceback."""

from __future__ import annotations

import contextlib
import os
import signal

EXIT_USER_ERROR = 2  # exit status of a command that ends with a UserError
LESS_MEMORY = (
    "lower --global-batch.micro-batch-size, --max-seq-length or the sizes of the model, or give --enable-recomputation"
)


class UserError(ValueError):
    """An error that the user can fix, in something that the user wrote or named.

    The message is one line: it names the field, file or record at fault and what to do about it.
    Entry points print it as ``error: …`` and exit with status 2, without a traceback.
    """


class ProcessLostError(UserError):
    """Another process of the run is gone, so this one cannot continue.

    ``run`` is the name under which the run can be resumed, empty if it has not begun.
    """

    def __init__(self, lost: str, index: int, run: str = "") -> None:
        again = (
            f"; resume from the last checkpoint with --name {run} --resume, with any number of processes" if run else ""
        )
        super().__init__(f"{lost}, so process {index} stops, too{again}")


class Stopped(KeyboardInterrupt):
    """The run was stopped by a signal; its state is saved."""

    def __init__(self, signal_name: str, where: str = "") -> None:
        super().__init__(f"stopped by {signal_name}{where}")
        self.status = 128 + signal.Signals[signal_name]  # of the process, as in shells
        self.run = ""  # name under which the run can be resumed
        self.is_reported = True  # by this process


def print_error(line: str) -> None:
    """Write to standard error past Python's buffered streams, whose locks another thread may hold."""
    with contextlib.suppress(OSError):  # nobody may read it any more
        os.write(2, f"\n{line}\n".encode())


def one_line(error: object, most: int = 200) -> str:
    """Return what an error says, on one line and cut after ``most`` characters."""
    return " ".join(str(error).split())[:most]
