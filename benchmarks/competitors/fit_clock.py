"""How long the steps of a Keras ``fit`` took, without setting it up."""

from __future__ import annotations

import time
from typing import Any

from keras_extensions.backend import keras


class FitClock(keras.callbacks.Callback):
    """Seconds from the begin of the first step to the end of the last."""

    seconds = 0.0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Keras: training begins."""
        self._begin: float | None = None

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Keras: an execution begins."""
        if self._begin is None:
            self._begin = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Keras: an execution ended."""
        assert self._begin is not None
        self.seconds = time.perf_counter() - self._begin
