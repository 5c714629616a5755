"""Turns what ends a run from outside into one line for the user: a full disk, a signal, a lost process."""

from __future__ import annotations

import contextlib
from typing import Iterator, Optional

from execution.processes import Processes
from keras_extensions.backend import tf
from keras_extensions.callbacks.signals import StopRequest
from training.run_folder import RunFolder
from utilities.errors import ReplicaLostError, Stopped, UserError
from utilities.history import INTERRUPT

_DISK_ERRORS = ("No space left on device", "Disk quota exceeded", "File too large", "Read-only file system")


class CurrentRun:
    """The run that messages name.

    Attributes:
        folder: its folder; None while there is none.
    """

    folder: Optional[RunFolder] = None

    @property
    def name(self) -> str:
        """Name under which the run can be resumed; empty while there is no folder."""
        return self.folder.path.name if self.folder else ""


@contextlib.contextmanager
def run_failures(processes: Processes, stop: StopRequest) -> Iterator[CurrentRun]:
    """Within the block, which is a whole run, translate failures.

    Raises:
        UserError: a file of the run could not be written or read.
        ReplicaLostError: another process is gone.
        Stopped: the run was asked to stop; names the run if there is something to resume.
    """
    current = CurrentRun()
    try:
        with process_failures(processes, stop, current):
            yield current
    except Stopped as stopped:
        if current.folder is not None:
            stopped.run = current.name
            with contextlib.suppress(OSError):  # the state is saved already, even if the disk is full now
                current.folder.history.add(INTERRUPT, current.folder.last_step(), told=str(stopped))
        raise
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno is None or current.folder is None:
            raise
        place = error.filename or current.folder.path
        raise UserError(f"{place}: {error.strerror}; {_remedy(current)}") from error
    except tf.errors.OpError as error:
        reason = next((reason for reason in _DISK_ERRORS if reason in str(error)), None)
        if reason is None or current.folder is None:
            raise
        raise UserError(f"{current.folder.path}: {reason}; {_remedy(current)}") from error


@contextlib.contextmanager
def process_failures(
    processes: Processes, stop: Optional[StopRequest] = None, current: Optional[CurrentRun] = None
) -> Iterator[None]:
    """Within the block, translate the loss of another process.

    Raises:
        ReplicaLostError: another process is gone.
        Stopped: all processes were asked to stop, which only the chief reports.
    """
    if processes.is_single:
        yield
        return
    try:
        yield
    except Stopped as stopped:
        stopped.is_reported = processes.is_chief
        raise
    except tf.errors.OpError as error:
        lost = processes.lost(error)
        if lost is None:
            raise
        if stop is not None and stop.signal is not None:
            instead = Stopped(stop.signal)
            instead.is_reported = processes.is_chief
            raise instead from None
        raise ReplicaLostError(lost, processes.index, current.name if current else "") from error


def _remedy(current: CurrentRun) -> str:
    return f"fix that and resume from the last checkpoint: --name {current.name} --resume"
