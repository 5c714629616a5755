"""What ends a run from outside, in one line: a disk that refuses, and a signal."""

from __future__ import annotations

import contextlib
from typing import Iterator, Optional

from keras_extensions.backend import tf
from training.run_folder import RunFolder
from utilities.errors import Stopped, UserError
from utilities.history import INTERRUPT

_DISK = ("No space left on device", "Disk quota exceeded", "File too large", "Read-only file system")


class Failures:
    """Of which run to tell.

    Attributes:
        run: its folder; None until it has one.
    """

    run: Optional[RunFolder] = None


@contextlib.contextmanager
def failures_told() -> Iterator[Failures]:
    """Around all that a run does.

    Raises:
        UserError: a file of the run could not be written or read.
        Stopped: someone asked for it; with the name under which the run goes on, if there is something to go on with.
    """
    failures = Failures()
    try:
        yield failures
    except Stopped as stop:
        run = failures.run
        if run is None:
            raise
        with contextlib.suppress(OSError):  # the state is saved; that the disk is full now is no news
            run.history.add(INTERRUPT, run.last_step(), told=str(stop))
        raise Stopped(str(stop), run.path.name, stop.told) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno is None or failures.run is None:
            raise
        place = error.filename or failures.run.path
        raise UserError(f"{place}: {error.strerror}; {_fix(failures.run)}") from error
    except tf.errors.OpError as error:
        reason = next((reason for reason in _DISK if reason in str(error)), None)
        if reason is None or failures.run is None:
            raise
        raise UserError(f"{failures.run.path}: {reason}; {_fix(failures.run)}") from error


def _fix(run: RunFolder) -> str:
    return f"mend that and go on from the last checkpoint: --name {run.path.name} --resume"
