"""The error that a user can mend."""

from __future__ import annotations


class UserError(ValueError):
    """Something the user wrote or pointed to is wrong.

    The message is one line: it names the field, file or record at fault and what to do about it.
    Entry points print it as ``error: …`` and exit with status 2, without a traceback.
    """


class ReplicaLostError(UserError):
    """Another process of the run is gone, so this one cannot go on."""


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
