"""Checkpoints written by a thread of their own, while training goes on."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from checkpoints.rotation import KEEP_ALL, Rotation, rotate
from checkpoints.state import TrainingState

NICENESS = 10


class CheckpointWriter:
    """Saves a run's state without holding training up for longer than the copy in memory.

    One checkpoint is written at a time: a save that comes while the one before is being written waits for it. What went
    wrong in the thread comes out of the next call, whichever it is.

    Args:
        folder: of the run's checkpoints.
        state: what to save.
        facts: of the present moment, from the number of updates done; they go into checkpoint.json.
        run: the run's id, part of the facts; only checkpoints with it are ever removed.
        vocabulary: ``vocab.txt`` to put beside the weights.
        rotation: which checkpoints to keep.
        on_written: called with the folder of every finished checkpoint, by the call that finds it finished.
    """

    def __init__(
        self,
        folder: Path,
        state: TrainingState,
        facts: Callable[[int], Dict[str, Any]],
        run: str,
        vocabulary: Optional[Path] = None,
        rotation: Rotation = KEEP_ALL,
        on_written: Callable[[Path], None] = lambda path: None,
    ) -> None:
        self.folder = folder
        self._state = state
        self._facts = facts
        self._run = run
        self._vocabulary = vocabulary
        self._rotation = rotation
        self._on_written = on_written
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint", initializer=_step_back)
        self._pending: List[Future] = []

    def save(self, step: int) -> None:
        """Copy the present state and have it written.

        Args:
            step: weight updates done.

        Raises:
            UserError: the checkpoint before could not be written.
        """
        self.wait()
        self._pending.append(self._thread.submit(self._write, self._state.copy(), step, self._all_facts(step)))

    def save_now(self, step: int) -> None:
        """Write the present state before this returns.

        A thread of this call's own writes: at full priority, which that of this class has given away, and outside the
        strategy in whose scope Keras calls; there the copies would be variables of the machine and, of several
        processes, of all.

        Args:
            step: weight updates done.

        Raises:
            UserError: this checkpoint, or the one before, could not be written.
        """
        self.wait()
        with ThreadPoolExecutor(max_workers=1) as thread:
            written = thread.submit(self._write, self._state.copy(), step, self._all_facts(step))
        self._on_written(written.result())

    def check(self) -> None:
        """Find out, without waiting, how the writing went.

        Raises:
            UserError: the checkpoint could not be written.
        """
        if self._pending and self._pending[0].done():
            self.wait()

    def wait(self) -> None:
        """Wait until what was copied is on disk.

        Raises:
            UserError: the checkpoint could not be written.
        """
        while self._pending:
            self._on_written(self._pending.pop().result())

    def close(self) -> None:
        """Wait, and end the thread. An error that nobody asked for is dropped; call ``wait`` first to hear of it."""
        self._thread.shutdown(wait=True)

    def _all_facts(self, step: int) -> Dict[str, Any]:
        return {**self._facts(step), "run": self._run}

    def _write(self, copy: Any, step: int, facts: Dict[str, Any]) -> Path:
        path = copy.write(self.folder, step, facts, self._vocabulary)
        rotate(self.folder, self._run, self._rotation)
        return path


class Participant:
    """Stands for the writer where another process writes: it only gives what that one needs of this process' state.

    Args:
        folder: of the run's checkpoints, as this process would have it.
        state: of which this process keeps a part.
    """

    def __init__(self, folder: Path, state: TrainingState) -> None:
        self.folder = folder
        self._state = state

    def save(self, step: int) -> None:
        """Give the parts of the present state; the writer of the other process must save at the same step."""
        if self._state.is_shared:
            self._state.copy()

    def save_now(self, step: int) -> None:
        """The same."""
        self.save(step)

    def check(self) -> None:
        """Nothing to find out."""

    def wait(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing to end."""


def _step_back() -> None:
    """Lower this thread's priority, where the system has one for each thread: what training leaves over is enough."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))
