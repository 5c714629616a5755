"""Creates the listeners of a run: progress, metrics, trackers, corrupt records."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Callable, List

from data_utils.records.pipeline import SampleReader
from keras_extensions.listeners.outputs import LiveReport, MetricsFile, TensorBoardScalars
from keras_extensions.listeners.progress import ProgressBar
from keras_extensions.listeners.reporting import Listener, Period
from keras_extensions.listeners.signals import StopRequest
from settings.schema import TrainingConfig
from training.run_folder import RunFolder
from training.wandb_run import wandb_runs  # room: wandb
from utilities.files import PROJECT
from utilities.history import SKIP, History
from utilities.run_names import METRICS

logger = logging.getLogger(__name__)


def make_listeners(config: TrainingConfig, run: RunFolder) -> List[Listener]:
    """Return the listeners that the config selects; progress and metrics.jsonl are always included."""
    listeners: List[Listener] = [ProgressBar(), MetricsFile(run.path / METRICS)]
    if config.tensorboard:
        listeners.append(TensorBoardScalars(run.path / "tensorboard"))
    listeners += wandb_runs(config, run)  # room: wandb
    if config.report:
        listeners.append(LiveReport(report_command(run.path), PROJECT, config.report_every_minutes * 60))
    return listeners


def report_command(folder: Path) -> List[str]:
    """Return the command that writes the report during training."""
    return [sys.executable, "-m", "reports", "--live", str(folder.resolve())]


class StopWhen(Listener):
    """Stops the run after a logging period, as a signal would, if ``until`` returns True."""

    def __init__(self, until: Callable[[Period], bool], request: StopRequest) -> None:
        self._until, self._request = until, request

    def period(self, period: Period) -> None:
        if self._until(period):
            self._request.signal = self._request.signal or "SIGTERM"


class CorruptRecords(Listener):
    """Adds the number of corrupt records that were skipped (``data.on_corrupt``) to the history whenever it grows."""

    def __init__(self, reader: SampleReader, history: History) -> None:
        self._reader, self._history = reader, history
        self._recorded = 0

    def period(self, period: Period) -> None:
        count = getattr(self._reader, "corrupt_records", 0)
        if count > self._recorded:
            self._recorded = count
            self._history.add(SKIP, period.step, corrupt_records=count)
