"""Checkpoints by step, by time, and at the end."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Optional

from keras_extensions.callbacks.updates import UpdateCounter


class Checkpoints(UpdateCounter):
    """Calls ``save(step)`` every so many updates, every so many seconds, and once more at the end of training.

    Executions of several updates may step over a multiple of ``every_n_updates``; the checkpoint is then
    written at the end of that execution. A state that was saved already is not saved again.

    Args:
        save: writes the checkpoint of the present state; its argument is the number of updates done.
        every_n_updates: distance between checkpoints, at least 1; None: none by step.
        first_step: updates done before this run.
        every_seconds: longest time between checkpoints, looked at after every execution; None: none by time.
        saved_step: the state that is on disk already when training begins; None: there is none.
        check: called after every execution that saves nothing, to raise what went wrong with writing meanwhile.
        clock: seconds that only grow; tests bring their own.
        agreed: makes of every process' view that the time is up the one that all act on.
        save_last: writes the checkpoint at the end of training, which nothing is left to do beside; as ``save``.
        last_step: updates after which training ends, where known: the end saves that state, not the execution before.
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
        agreed: Callable[[bool], bool] = bool,
        save_last: Optional[Callable[[int], Any]] = None,
        last_step: Optional[int] = None,
    ) -> None:
        super().__init__(first_step)
        assert every_n_updates is None or every_n_updates >= 1
        self.save = save
        self.every_n_updates = every_n_updates
        self.every_seconds = every_seconds
        self.check = check
        self._clock = clock
        self._agreed = agreed
        self._save_last = save_last or save
        self._last_step = last_step
        self._saved_step = saved_step
        self._saved_at = clock()

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """The time counts from here."""
        self._saved_at = self._clock()

    def on_execution_end(self, updates: int, metrics: Dict[str, float]) -> None:
        """Saves where a multiple of the distance was reached, or the time is up."""
        every = self.every_n_updates
        by_step = every is not None and self.step // every > (self.step - updates) // every
        by_time = self.every_seconds is not None and self._agreed(self._clock() - self._saved_at >= self.every_seconds)
        if (by_step or by_time) and self.step != self._last_step:
            self._save(self.save)
        else:
            self.check()

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Saves the final state."""
        self._save(self._save_last)

    def _save(self, save: Callable[[int], Any]) -> None:
        if self._saved_step != self.step:
            save(self.step)
            self._saved_step = self.step
            self._saved_at = self._clock()
