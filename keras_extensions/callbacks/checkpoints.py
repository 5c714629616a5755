"""Checkpoints by step and at the end."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from keras_extensions.callbacks.updates import UpdateCounter


class Checkpoints(UpdateCounter):
    """Calls ``save(step)`` every so many updates and once more at the end of training.

    Executions of several updates may step over a multiple of ``every_n_updates``; the checkpoint is then
    written at the end of that execution. A state that was saved already is not saved again.

    Args:
        save: writes the checkpoint of the present state; its argument is the number of updates done.
        every_n_updates: distance between checkpoints, at least 1; None: only at the end.
        first_step: updates done before this run.
    """

    def __init__(self, save: Callable[[int], Any], every_n_updates: Optional[int] = None, first_step: int = 0) -> None:
        super().__init__(first_step)
        assert every_n_updates is None or every_n_updates >= 1
        self.save = save
        self.every_n_updates = every_n_updates
        self._saved_step: Optional[int] = None

    def on_execution_end(self, updates: int, metrics: Dict[str, float]) -> None:
        """Saves where a multiple of the distance was reached."""
        every = self.every_n_updates
        if every is not None and self.step // every > (self.step - updates) // every:
            self._save()

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Saves the final state."""
        self._save()

    def _save(self) -> None:
        if self._saved_step != self.step:
            self.save(self.step)
            self._saved_step = self.step
