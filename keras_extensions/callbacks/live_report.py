"""The report of a run that is under way, written again from time to time by a process of its own."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from pathlib import Path
from typing import Callable, List, Optional, Sequence

from keras_extensions.callbacks.reporting import Listener, Period

logger = logging.getLogger(__name__)

FIRST_AFTER = 30.0  # seconds: a run that ends before then has its report at the end only
LARGEST_SHARE = 0.02  # of one processor core's time that refreshing may take, however long the page takes to write


class LiveReport(Listener):
    """Runs a command at the end of a logging period, if the last time is long enough ago.

    Training never waits for it: one process at most, of the lowest priority. What bounds its cost is the distance
    between two: ``every_seconds`` at least, and more where the command takes longer than ``LARGEST_SHARE`` of it.

    Args:
        command: writes the report.
        folder: where it runs.
        every_seconds: the least time between two starts.
        clock: seconds that only grow; tests bring their own.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        every_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command: List[str] = list(command)
        self._folder = folder
        self._every = every_seconds
        self._clock = clock
        self._due: Optional[float] = None
        self._process: Optional[subprocess.Popen] = None
        self._started = self._children_before = 0.0
        self._failed = False

    def begin(self, first_step: int, total_steps: int) -> None:
        """The first report is due a little after the start."""
        self._due = self._clock() + min(FIRST_AFTER, self._every)

    def period(self, period: Period) -> None:
        """Starts the command where it is time."""
        if self._process is not None and self._process.poll() is not None:
            self._finished(self._process.returncode)
        now = self._clock()
        if self._process is not None or self._failed or self._due is None or now < self._due:
            return
        self._started, self._children_before = now, children_seconds()
        self._due = now + self._every
        try:
            self._process = subprocess.Popen(
                self._command,
                cwd=str(self._folder),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the training
            )
        except OSError as error:
            self._give_up(error.strerror or str(error))

    def end(self) -> None:
        """Stops a command that is under way; the last report is written by who ends the run."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def _finished(self, status: int) -> None:
        self._process = None
        seconds = children_seconds() - self._children_before
        self._due = self._started + max(self._every, seconds / LARGEST_SHARE)
        logger.debug("report refreshed in %.1f s of processor time", seconds)
        if status:
            self._give_up(f"status {status}")

    def _give_up(self, reason: str) -> None:
        self._failed = True
        logger.warning("the report is not refreshed during the run (%s); try: %s", reason, " ".join(self._command))


def children_seconds() -> float:
    """Processor time of all processes that this one has started and seen end."""
    times = os.times()
    return times.children_user + times.children_system
