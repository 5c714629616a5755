"""The errors that end a run with a message instead of a traceback."""

from __future__ import annotations

EXIT_USER_ERROR = 2  # exit status of a command that ends with a UserError


class UserError(ValueError):
    """An error that the user can fix, in something that the user wrote or named.

    The message is one line: it names the field, file or record at fault and what to do about it.
    Entry points print it as ``error: …`` and exit with status 2, without a traceback.
    """


class ReplicaLostError(UserError):
    """Another process of the run is gone, so this one cannot continue.

    Args:
        lost: text that names the process.
        index: number of this process.
        run: name under which the run can be resumed; empty if it has not begun.
    """

    def __init__(self, lost: str, index: int, run: str = "") -> None:
        again = (
            f"; resume from the last checkpoint with --name {run} --resume, with any number of replicas" if run else ""
        )
        super().__init__(f"{lost}, so replica {index} stops, too{again}")
        self.lost = lost
        self.index = index


class Stopped(KeyboardInterrupt):
    """The run has stopped on request, and its state is saved.

    Attributes:
        run: name under which it can be resumed.
        is_reported: whether this process reports it.
    """

    def __init__(self, message: str, run: str = "", is_reported: bool = True) -> None:
        super().__init__(message)
        self.run = run
        self.is_reported = is_reported
