"""Turns external ends of a run, such as a full disk, too little memory, a signal or a lost process, into one line."""

from __future__ import annotations

import contextlib
import re
from typing import Iterator, Optional

from execution.processes import Processes
from keras_extensions.backend import tf
from keras_extensions.listeners.signals import StopRequest
from training.run_folder import RunFolder
from utilities.errors import LESS_MEMORY, ProcessLostError, Stopped, UserError
from utilities.files import disk_error, failed_write
from utilities.history import INTERRUPT

# How TensorFlow, XLA and NumPy say that memory is exhausted. Only some of their errors have a class of their own.
_OUT_OF_MEMORY = re.compile(
    r"OOM when allocating tensor with shape\[[\d,]*\]|Out of memory while trying to allocate [\w.]+"
    r"|Unable to allocate .*|Dst tensor is not initialized|CUDA_ERROR_OUT_OF_MEMORY|std::bad_alloc"
)


class CurrentRun:
    folder: Optional[RunFolder] = None

    @property
    def name(self) -> str:
        """Name under which the run can be resumed; empty while there is no folder."""
        return self.folder.path.name if self.folder else ""


@contextlib.contextmanager
def run_failures(processes: Processes, stop: StopRequest) -> Iterator[CurrentRun]:
    """Within the block, which contains a whole run, translate failures.

    A file that cannot be used, or exhausted memory, becomes a ``UserError``; a ``Stopped`` names the run if it can be
    resumed.
    """
    current = CurrentRun()
    try:
        with process_failures(processes, stop, current):
            yield current
    except Stopped as stopped:
        stopped.is_reported = processes.is_chief
        if current.folder is not None:
            stopped.run = current.name
            with contextlib.suppress(OSError):  # the state is saved already, even if the disk is full now
                current.folder.history.add(INTERRUPT, current.folder.last_step(), message=str(stopped))
        raise
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno is None or (current.folder is None and error.filename is None):
            raise
        if current.folder is None:
            raise UserError(f"{error.filename}: {error.strerror}; correct the path, or get access to it") from error
        raise failed_write(error, current.folder.path, _remedy(current)) from error
    except tf.errors.OpError as error:
        refused = disk_error(str(error))
        if refused is not None and current.folder is not None:
            raise failed_write(refused, current.folder.path, _remedy(current)) from error
        if isinstance(error, tf.errors.ResourceExhaustedError) or _OUT_OF_MEMORY.search(str(error)):
            raise UserError(out_of_memory(error)) from error
        raise
    except MemoryError as error:
        raise UserError(out_of_memory(error)) from error


@contextlib.contextmanager
def process_failures(processes: Processes, stop: StopRequest, current: CurrentRun) -> Iterator[None]:
    """Within the block, translate the loss of another process."""
    try:
        yield
    except tf.errors.OpError as error:
        lost = None if processes.is_single else processes.lost(error)
        if lost is None:
            raise
        if stop.signal is not None:
            raise Stopped(stop.signal) from None
        raise ProcessLostError(lost, processes.index, current.name) from error


def out_of_memory(error: Exception) -> str:
    """Return the message for a run that needs more memory than is available."""
    match = _OUT_OF_MEMORY.search(str(error))
    return f"out of memory{f' ({match.group()})' if match else ''}; {LESS_MEMORY}"


def _remedy(current: CurrentRun) -> str:
    return f"fix that and resume from the last checkpoint: --name {current.name} --resume"
