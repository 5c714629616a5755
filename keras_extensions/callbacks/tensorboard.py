"""Scalars for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

from keras_extensions.backend import tf
from keras_extensions.callbacks.reporting import Listener, Period


class TensorBoardScalars(Listener):
    """Writes metrics, learning rate and throughput of every period as scalars against the step.

    Args:
        folder: folder of the event files; made if absent.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._writer: Optional[Any] = None

    def begin(self, first_step: int, total_steps: int) -> None:
        """Opens an event file."""
        self._writer = tf.summary.create_file_writer(str(self.folder))

    def period(self, period: Period) -> None:
        """Writes and flushes the period."""
        assert self._writer is not None, "begin() opens the writer"
        scalars = dict(period.metrics, throughput=period.throughput)
        scalars.update({f"{unit}_per_second": rate for unit, rate in period.rates.items()})
        if period.learning_rate is not None:
            scalars["learning_rate"] = period.learning_rate
        with self._writer.as_default(step=period.step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def end(self) -> None:
        """Closes the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
