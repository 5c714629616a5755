"""The error that a user can mend."""

from __future__ import annotations

EXIT_USER_ERROR = 2  # status of every command that ends with one
LESS_MEMORY = (
    "lower --global-batch.micro-batch-size, --max-seq-length or the sizes of the model, or give --enable-recomputation"
)


class UserError(ValueError):
    """Something the user wrote or pointed to is wrong.

    The message is one line: it names the field, file or record at fault and what to do about it.
    Entry points print it as ``error: …`` and exit with status 2, without a traceback.
    """


class ReplicaLostError(UserError):
    """Another process of the run is gone, so this one cannot continue.

    Args:
        lost: says which process.
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
    """The run was asked to stop, and did; its state is saved.

    Attributes:
        run: name under which it can be resumed.
        is_reported: whether this process reports it.
    """

    def __init__(self, message: str, run: str = "", is_reported: bool = True) -> None:
        super().__init__(message)
        self.run = run
        self.is_reported = is_reported
