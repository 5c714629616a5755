"""Tells of records that were skipped because they could not be used (``data.on_corrupt``)."""

from __future__ import annotations

from data_utils.records.pipeline import SampleReader
from keras_extensions.callbacks.reporting import Listener, Period
from utilities.history import SKIP, History


class CorruptRecordsTold(Listener):
    """Writes the number of records that were skipped since the run was started into its history, where it grows.

    Args:
        reader: of the training data; one without ``corrupt_records`` skips none.
        history: of the run.
    """

    def __init__(self, reader: SampleReader, history: History) -> None:
        self._reader, self._history = reader, history
        self._told = 0

    def period(self, period: Period) -> None:
        found = getattr(self._reader, "corrupt_records", 0)
        if found > self._told:
            self._told = found
            self._history.add(SKIP, period.step, corrupt_records=found)
