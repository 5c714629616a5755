"""Writes checkpoints atomically on a background thread, and removes those that need not be kept."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from checkpoints.folder import (
    DESCRIPTION,
    REPLACED,
    UNFINISHED,
    description_as_json,
    flush_to_disk,
    folder_name,
    parse_step,
    read_description,
    run_of,
    step_folders,
)
from checkpoints.state import StateCopy, TrainingState
from utilities.errors import UserError
from utilities.files import sha256, write_atomically

logger = logging.getLogger(__name__)

NICENESS = 10


def write_checkpoint(
    copy: StateCopy,
    folder: Path,
    step: int,
    description: Dict[str, Any],
    vocabulary: Optional[Mapping[str, bytes]] = None,
) -> Path:
    """Write a checkpoint and return its folder.

    Its files are written to a temporary folder and flushed to disk before that gets its name, so a ``step-…`` folder is
    complete even after a power failure.
    """
    final = folder / folder_name(step)
    temporary = folder / f"{UNFINISHED}{final.name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        copy.write_files(temporary)
        for name, content in (vocabulary or {}).items():
            (temporary / name).write_bytes(content)
        files = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
        description = {"step": step, **description, **copy.description, "files": files}
        (temporary / DESCRIPTION).write_text(description_as_json(description), encoding="utf-8")
        for path in [*temporary.iterdir(), temporary]:
            flush_to_disk(path)
        replaced = folder / f"{REPLACED}{final.name}"
        if final.exists():
            os.replace(final, replaced)
        os.replace(temporary, final)
        flush_to_disk(folder)
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = error.strerror or error
        raise UserError(f"save_ckpt_path: cannot write {final} ({reason}); free space there or change it") from error
    return final


def rewrite_description(checkpoint: Path, changes: Dict[str, Any]) -> None:
    """Change the description of an existing checkpoint; checkpoint.json is replaced atomically."""
    description = {
        key: value for key, value in read_description(checkpoint).items() if key not in ("format", "version", "sha256")
    }
    try:
        write_atomically(checkpoint / DESCRIPTION, description_as_json({**description, **changes}))
        flush_to_disk(checkpoint)
    except OSError as error:
        raise UserError(f"{checkpoint}: cannot be changed ({error.strerror}); free space there") from error


class Rotation(NamedTuple):
    """Which checkpoints are kept: the last, and the first at or after each multiple of ``keep_every`` updates."""

    keep_last: Optional[int] = None
    keep_every: Optional[int] = None


def steps_to_remove(steps: Sequence[int], rotation: Rotation) -> List[int]:
    """Return the ascending steps whose checkpoints are to be removed."""
    if rotation.keep_last is None:
        return []
    older = list(steps[: -rotation.keep_last])
    every = rotation.keep_every
    if every is None:
        return older
    # Keep the first checkpoint of each keep_every updates. One that was removed earlier cannot have been the first.
    return [step for step, previous in zip(older, [0, *older]) if step // every == previous // every]


def rotate(folder: Path, run: str, rotation: Rotation, best: Optional[int] = None) -> None:
    """Remove checkpoints of the run that are not kept, except ``best``; a failure is only a warning."""
    own = {parse_step(path): path for path in step_folders(folder) if run_of(path) == run}  # not the damaged ones
    for step in steps_to_remove(sorted(own), rotation):
        if step != best:
            _remove(own[step])


def _remove(checkpoint: Path) -> None:
    """Rename the checkpoint before removing it, because an incomplete one must never be visible."""
    renamed = checkpoint.with_name(f"{UNFINISHED}{checkpoint.name}")
    try:
        shutil.rmtree(renamed, ignore_errors=True)
        os.replace(checkpoint, renamed)
        flush_to_disk(checkpoint.parent)
        shutil.rmtree(renamed)
    except OSError as error:
        logger.warning("cannot remove the old checkpoint %s (%s)", checkpoint, error.strerror)


class CheckpointWriter:
    """Saves a run's state in the background; training waits only for the copy in memory.

    One checkpoint is written at a time; a new save waits for the previous one. An error in the background thread is
    raised by the next call of any method.

    In processes other than the chief it only contributes shards of the state to the chief's copy, at the same steps.

    Args:
        description: function that returns the description for checkpoint.json, given the number of updates done.
        on_written: called with the folder of every finished checkpoint, by the method that notices it.

    Attributes:
        best: step of the best checkpoint so far, which is kept in any case; None if unknown.
    """

    best: Optional[int] = None

    def __init__(
        self,
        folder: Path,
        state: TrainingState,
        description: Callable[[int], Dict[str, Any]],
        run: str,
        rotation: Rotation,
        vocabulary: Optional[Mapping[str, bytes]] = None,
        on_written: Callable[[Path], None] = lambda path: None,
        is_chief: bool = True,
    ) -> None:
        self.folder = folder
        self._state = state
        self._description = description
        self._run = run
        self._vocabulary = vocabulary
        self._rotation = rotation
        self._on_written = on_written
        self._is_chief = is_chief
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint", initializer=_lower_priority)
        self._pending: List[Future] = []

    def save(self, step: int) -> None:
        """Copy the present state, after ``step`` updates, and write it in the background."""
        self._submit(self._thread, step)

    def save_now(self, step: int) -> None:
        """Write the present state before this method returns.

        A new thread writes it. Unlike this class's own thread, it has normal priority, and it is outside the scope of
        the strategy in which Keras calls this method; new variables would be placed on the machine there and, with
        several processes, shared by all.
        """
        with ThreadPoolExecutor(max_workers=1) as thread:
            self._submit(thread, step)
        self.wait()

    def check(self) -> None:
        """Report a finished write without waiting for an unfinished one."""
        if self._pending and self._pending[0].done():
            self.wait()

    def wait(self) -> None:
        while self._pending:
            self._on_written(self._pending.pop().result())

    def close(self) -> None:
        """Wait, and end the thread. Errors are dropped; call ``wait`` first to have them raised."""
        self._thread.shutdown(wait=True)

    def _submit(self, thread: ThreadPoolExecutor, step: int) -> None:
        self.wait()
        if self._is_chief:
            description = {**self._description(step), "run": self._run}
            self._pending.append(thread.submit(self._write, self._state.copy(), step, description))
        elif self._state.shards.is_sharded:
            self._state.copy()

    def _write(self, copy: StateCopy, step: int, description: Dict[str, Any]) -> Path:
        path = write_checkpoint(copy, self.folder, step, description, self._vocabulary)
        rotate(self.folder, self._run, self._rotation, self.best)
        return path


def _lower_priority() -> None:
    """Lower the priority of the calling thread, on systems where threads have priorities."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))
