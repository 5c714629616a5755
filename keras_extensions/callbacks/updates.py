"""How many updates a run has done, told by Keras's hooks."""

from __future__ import annotations

from typing import Any, Dict, Optional

from keras_extensions.backend import keras


class UpdateCounter(keras.callbacks.Callback):
    """Base of callbacks that count updates over epochs and executions of several steps.

    With ``steps_per_execution=K`` Keras calls ``on_train_batch_end`` once for up to K updates; ``batch`` is
    the index within the epoch of the last of them.

    Args:
        first_step: updates done before this run, by the run that it resumes.

    Attributes:
        step: updates done so far, with those before this run.
    """

    def __init__(self, first_step: int = 0) -> None:
        super().__init__()
        self.first_step = first_step
        self.step = first_step
        self._epoch_start = first_step

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Keras starts to count anew."""
        self._epoch_start = self.step

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Keras: an execution ended."""
        done = self._epoch_start + batch + 1
        updates, self.step = done - self.step, done
        self.on_execution_end(updates, {name: float(value) for name, value in (logs or {}).items()})

    def on_execution_end(self, updates: int, metrics: Dict[str, float]) -> None:
        """``updates`` more updates were done; ``metrics`` are their averages."""
        raise NotImplementedError
