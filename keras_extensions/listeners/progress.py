"""Shows a run to the user: one log line per period, and a progress bar on a terminal.

Scripts parse the log lines, so their format must not change: ``mlm_loss: 7.1234``, ``nsp_loss: 0.6931`` and
``throughput: 153.2 samples/sec``, each once per period.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import logging.handlers
import sys
from pathlib import Path
from typing import Iterator, List, Optional, TextIO

from tqdm import tqdm

from keras_extensions.listeners.reporting import Evaluation, Listener, Period
from utilities.metric_names import LOSS_SCALE, OVERFLOWS, part_losses
from utilities.progress import waiting
from utilities.secrets import MaskingFormatter

logger = logging.getLogger(__name__)

EarlyRecords = logging.handlers.MemoryHandler


class ProgressBar(Listener):
    """Logs one line per period and, on a terminal, draws a progress bar."""

    def __init__(self, stream: Optional[TextIO] = None) -> None:
        self.stream = stream or sys.stderr
        self._bar = tqdm(disable=True)
        self._last: Optional[Period] = None
        self._waiting = contextlib.ExitStack()

    def begin(self, first_step: int, total_steps: int) -> None:
        if is_terminal(self.stream):
            self._bar = tqdm(
                total=total_steps,
                initial=first_step,
                desc="compiling ",
                unit="step",
                file=self.stream,
                dynamic_ncols=True,
                bar_format="{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{postfix}",
            )
        self._waiting.enter_context(waiting("compiling the model and computing the first updates"))

    def compiled(self, seconds: float, updates: int, note: str) -> None:
        self._waiting.close()
        steps = "first step" if updates == 1 else f"first {updates} steps"
        logger.info("%s after %.1f s, %s", steps, seconds, note)
        self._bar.set_description_str("", refresh=False)

    def period(self, period: Period) -> None:
        self._last = period
        logger.info(log_line(period), extra={"is_on_bar": True})
        self._bar.set_postfix_str(bar_text(period), refresh=False)
        self._bar.update(period.step - self._bar.n)
        self._bar.refresh()

    def evaluated(self, evaluation: Evaluation) -> None:
        # Without the colons of a period's line, which scripts parse.
        scores = ", ".join(f"{name} {value:.4f}" for name, value in evaluation.scores.items())
        best = ", the best so far" if evaluation.is_best else ""
        logger.info("evaluation at step %d/%d: %s%s", evaluation.step, evaluation.total_steps, scores, best)

    def end(self) -> None:
        self._waiting.close()
        self._bar.close()
        if self._last is not None:
            step, total, seconds = self._last.step, self._last.total_steps, self._last.seconds
            logger.info("training ended at step %d/%d after %s", step, total, format_duration(seconds))
            self._last = None


def log_line(period: Period) -> str:
    parts = [f"step {period.step}/{period.total_steps}"]
    parts += [
        f"{name}: {value:.{0 if name in (OVERFLOWS, LOSS_SCALE) else 4}f}" for name, value in period.metrics.items()
    ]
    if period.learning_rate is not None:
        parts.append(f"learning_rate: {period.learning_rate:.1e}")
    compiling = " (with compilation)" if period.compiling else ""
    parts.append(f"throughput: {period.throughput:.1f} samples/sec{compiling}")
    parts += [f"{rate:.1f} {unit}/sec" for unit, rate in period.rates.items()]
    parts.append(f"ETA {format_duration(period.eta)}")
    return " | ".join(parts)


def bar_text(period: Period) -> str:
    """Return the text after the bar, which fits into 80 columns in pre-training; the end may be cut off."""
    parts = [f"ETA {format_duration(period.eta)}", f"{period.throughput:.1f} samples/s"]
    parts += [f"{name} {period.metrics[name]:.3f}" for name in part_losses(period.metrics)]
    return ", ".join(parts)


def format_duration(seconds: Optional[float]) -> str:
    """Format seconds as ``H:MM:SS``, preceded by days if there are any."""
    return "-:--:--" if seconds is None else str(datetime.timedelta(seconds=round(seconds)))


def is_terminal(stream: TextIO) -> bool:
    return bool(getattr(stream, "isatty", lambda: False)())


@contextlib.contextmanager
def early_log() -> Iterator[EarlyRecords]:
    """Within the block, keep log records until :func:`run_log` writes those from before its file into it."""
    handler = EarlyRecords(1_000, logging.CRITICAL + 1, flushOnClose=False)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler
    finally:
        root.removeHandler(handler)


@contextlib.contextmanager
def run_log(
    log_file: Path, level: str = "INFO", stream: Optional[TextIO] = None, early: Optional[EarlyRecords] = None
) -> Iterator[None]:
    """Within the block, send log records with secrets masked to a file and to the console.

    Other handlers of the same console are removed until the block ends, because lines would appear twice. On a
    terminal, the console omits the lines of periods, which the bar shows, and prints the others above the bar.
    """
    stream = stream or sys.stderr
    terminal = is_terminal(stream)
    file_handler = _LogFile(log_file, encoding="utf-8")
    file_handler.setFormatter(MaskingFormatter())
    console: logging.Handler = _AboveTheBar(stream) if terminal else logging.StreamHandler(stream)
    console.setFormatter(MaskingFormatter())
    if terminal:
        console.addFilter(lambda record: not getattr(record, "is_on_bar", False))
    handlers: List[logging.Handler] = [file_handler, console]
    root = logging.getLogger()
    if early is not None:
        root.removeHandler(early)
        early.setTarget(file_handler)
        early.flush()
    previous = root.level
    replaced = [h for h in root.handlers if type(h) is logging.StreamHandler and h.stream is stream]
    for duplicate in replaced:
        root.removeHandler(duplicate)
    root.setLevel(level)
    for handler in handlers:
        root.addHandler(handler)
    try:
        yield
    finally:
        root.setLevel(previous)
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()
        for duplicate in replaced:
            root.addHandler(duplicate)


class _LogFile(logging.FileHandler):
    """A log file whose first failing write, for example on a full disk, ends the run instead of printing tracebacks."""

    failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        if not self.failed:
            self.failed = True
            raise  # called while an exception is being handled

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the error of an earlier write
            super().close()


class _AboveTheBar(logging.StreamHandler):
    """Writes through tqdm, which redraws the bar below the text."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            tqdm.write(self.format(record), file=self.stream)
        except Exception:
            self.handleError(record)
