"""Shows that long work goes on: a bar on a terminal, and elsewhere a line of the log about every ten seconds."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from typing import Iterator, Optional

from tqdm import tqdm

logger = logging.getLogger(__name__)

BAR_SECONDS, LINE_SECONDS = 0.1, 10.0  # between two drawings of a bar, and between two lines
LINE = "{desc}: {n_fmt} of {total_fmt}{unit}, {elapsed}, {remaining} left, {rate_fmt}{postfix}"
LINE_WITHOUT_TOTAL = "{desc}: {n_fmt}{unit}, {elapsed}, {rate_fmt}{postfix}"


def progress_bar(total: Optional[int], label: str, unit: str = "B", delay: float = 0.0) -> tqdm:
    """Return a bar with rate and remaining time on standard error; if that is no terminal, it writes lines of the log.

    Args:
        total: Sum of all amounts that ``update`` gets; None if it is not known.
        delay: Seconds before it is shown for the first time.
    """
    if unit != "B":
        unit = f" {unit}"
    common = {"total": total, "desc": label, "unit": unit, "unit_scale": unit == "B", "miniters": 1, "delay": delay}
    if sys.stderr is not None and sys.stderr.isatty():  # None: it was closed when the program started
        return tqdm(dynamic_ncols=True, mininterval=BAR_SECONDS, **common)
    line = LINE if total is not None else LINE_WITHOUT_TOTAL
    return tqdm(file=_LogLines(), bar_format=line, mininterval=LINE_SECONDS, maxinterval=LINE_SECONDS, **common)


class _LogLines:
    """A stream for tqdm, whose drawings become lines of the log."""

    def write(self, text: str) -> None:
        line = text.strip("\r\n ")
        if line:
            logger.info(line)

    def flush(self) -> None:
        """Do nothing: a line is complete."""


@contextlib.contextmanager
def waiting(what: str, seconds: float = LINE_SECONDS) -> Iterator[None]:
    """Within the block, log at intervals that work goes on whose progress cannot be measured."""
    ended, begun = threading.Event(), time.monotonic()

    def report() -> None:
        while not ended.wait(seconds):
            logger.info("%s, for %.0f s", what, time.monotonic() - begun)

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
