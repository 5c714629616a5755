"""The error that a user can mend."""

from __future__ import annotations

EXIT_USER_ERROR = 2  # status of every command that ends with one


class UserError(ValueError):
    """Something the user wrote or pointed to is wrong.

    The message is one line: it names the field, file or record at fault and what to do about it.
    Entry points print it as ``error: …`` and exit with status 2, without a traceback.
    """


class ReplicaLostError(UserError):
    """Another process of the run is gone, so this one cannot go on.

    Args:
        lost: which, in words.
        index: of this process.
        run: the name under which the run goes on; none where it has not begun.
    """

    def __init__(self, lost: str, index: int, run: str = "") -> None:
        again = (
            f"; go on from the last checkpoint with --name {run} --resume, with any number of replicas" if run else ""
        )
        super().__init__(f"{lost}, so replica {index} stops, too{again}")
        self.lost = lost
        self.index = index


class Stopped(KeyboardInterrupt):
    """Someone asked a run to stop, and it did: what it had done is saved.

    Attributes:
        run: the name under which it goes on.
        told: whether it is for this process to tell of it.
    """

    def __init__(self, message: str, run: str = "", told: bool = True) -> None:
        super().__init__(message)
        self.run = run
        self.told = told
