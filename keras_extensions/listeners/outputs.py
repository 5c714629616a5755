"""Listeners that write what other programs read during a run: metrics.jsonl, TensorBoard scalars, the report."""

from __future__ import annotations

import contextlib
import logging
import math
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from keras_extensions.backend import tf
from keras_extensions.listeners.reporting import Evaluation, Listener, Period
from utilities.files import append_json_line
from utilities.metric_names import LEARNING_RATE, THROUGHPUT

logger = logging.getLogger(__name__)

SECONDS_TO_END = 10.0  # for the command that writes the report
FIRST_REPORT_SECONDS = 30.0  # shorter runs get their report only at the end


class MetricsFile(Listener):
    """Appends every period and every evaluation to metrics.jsonl at once, so that a killed run loses no line.

    The line of a period is a JSON object with ``step``, ``total_steps``, ``samples``, ``seconds``, ``throughput``
    (samples per second), with packing also ``packs_per_second`` and ``tokens_per_second``, then ``compiling`` (whether
    these include compilation), ``learning_rate`` and the object ``metrics``; that of an evaluation has the object
    ``evaluation`` after the first three. NaN and infinity become null.

    A resumed run appends to the same file.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def begin(self, first_step: int, total_steps: int) -> None:
        self.path.touch()

    def period(self, period: Period) -> None:
        record: Dict[str, Any] = {
            "step": period.step,
            "total_steps": period.total_steps,
            "samples": period.samples,
            "seconds": round(period.seconds, 3),
            THROUGHPUT: round(period.throughput, 3),
            **{f"{unit}_per_second": round(rate, 3) for unit, rate in period.rates.items()},
            "compiling": period.compiling,
            LEARNING_RATE: _finite(period.learning_rate),
            "metrics": {name: _finite(value) for name, value in period.metrics.items()},
        }
        append_json_line(self.path, record)

    def evaluated(self, evaluation: Evaluation) -> None:
        record = {
            "step": evaluation.step,
            "total_steps": evaluation.total_steps,
            "samples": evaluation.samples,
            "evaluation": {name: _finite(value) for name, value in evaluation.scores.items()},
        }
        append_json_line(self.path, record)


def _finite(value: Optional[float]) -> Optional[float]:
    return value if value is not None and math.isfinite(value) else None


class TensorBoardScalars(Listener):
    """Writes metrics, learning rate and throughput of every period as scalars for TensorBoard."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._writer: Optional[Any] = None

    def period(self, period: Period) -> None:
        self._write(period.step, period.scalars())

    def evaluated(self, evaluation: Evaluation) -> None:
        self._write(evaluation.step, evaluation.scalars())

    def _write(self, step: int, scalars: Dict[str, float]) -> None:
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self.folder))
        with self._writer.as_default(step=step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def end(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class LiveReport(Listener):
    """Refreshes the report during training, which never waits for it, by a command at the end of a logging period.

    At most one command runs at a time, and starts are ``every_seconds`` apart.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, every_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._command: List[str] = list(command)
        self._folder = folder
        self._every = every_seconds
        self._clock = clock
        self._due = math.inf
        self._process: Optional[subprocess.Popen] = None
        self._failed = False

    def begin(self, first_step: int, total_steps: int) -> None:
        self._due = self._clock() + min(FIRST_REPORT_SECONDS, self._every)

    def period(self, period: Period) -> None:
        if self._process is not None and self._process.poll() is not None:
            status, self._process = self._process.returncode, None
            if status:
                self._give_up(f"status {status}")
        now = self._clock()
        if self._process is not None or self._failed or now < self._due:
            return
        self._due = now + self._every
        try:
            self._process = subprocess.Popen(
                self._command,
                cwd=str(self._folder),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C must only reach the training
            )
        except OSError as error:
            self._give_up(error.strerror or str(error))

    def end(self) -> None:
        """Stop a running command; the trainer writes the final report."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(SECONDS_TO_END)
            self._process.kill()  # if it is still there, such as on a file system that does not answer
            self._process = None

    def _give_up(self, reason: str) -> None:
        self._failed = True  # also after a rewind, where training begins again
        logger.warning("the report is not refreshed during the run (%s); try: %s", reason, " ".join(self._command))
