"""Decides when checkpoints are saved: by step, by time, and at the end."""

from __future__ import annotations

import time
from typing import Any, Callable, Optional


class CheckpointTimer:
    """Calls ``save(step)`` every ``every_n_updates`` updates, every ``every_seconds`` seconds, and at the end.

    A logging period may pass a multiple of ``every_n_updates``; the checkpoint is then saved at its end. A state that
    is saved already is not saved again.

    Args:
        every_seconds: longest time between checkpoints, checked after every period; None: no checkpoints by time.
        check: called after every period that saves nothing, to raise errors of writing in the background.
        agree: turns this process's decision about ``every_seconds`` into one that all processes share.
    """

    def __init__(
        self,
        save: Callable[[int], Any],
        every_n_updates: Optional[int] = None,
        first_step: int = 0,
        every_seconds: Optional[float] = None,
        saved_step: Optional[int] = None,
        check: Callable[[], Any] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        agree: Callable[[bool], bool] = bool,
        save_last: Optional[Callable[[int], Any]] = None,
        last_step: Optional[int] = None,
    ) -> None:
        assert every_n_updates is None or every_n_updates >= 1
        self.save = save
        self.every_n_updates = every_n_updates
        self.every_seconds = every_seconds
        self.check = check
        self._step = first_step
        self._clock = clock
        self._agree = agree
        self._save_last = save_last or save
        self._last_step = last_step
        self._saved_step = saved_step
        self._saved_at = clock()

    def begin(self) -> None:
        self._saved_at = self._clock()

    def save_if_due(self, step: int) -> None:
        """Save the present state if a checkpoint was due in the period that ends now."""
        every, before, self._step = self.every_n_updates, self._step, step
        by_step = every is not None and step // every > before // every
        by_time = self.every_seconds is not None and self._agree(self._clock() - self._saved_at >= self.every_seconds)
        if (by_step or by_time) and step != self._last_step:
            self._save(self.save)
        else:
            self.check()

    def save_unsaved(self) -> None:
        self._save(self.save)

    def end(self) -> None:
        self._save(self._save_last)

    def _save(self, save: Callable[[int], Any]) -> None:
        if self._saved_step != self._step:
            save(self._step)
            self._saved_step = self._step
            self._saved_at = self._clock()
