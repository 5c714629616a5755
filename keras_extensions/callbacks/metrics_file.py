"""metrics.jsonl: the run's numbers for other programs, one JSON object a logging period."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, Optional, TextIO

from keras_extensions.callbacks.reporting import Listener, Period


class MetricsFile(Listener):
    """Appends every period to a file and flushes it, so that a killed run loses no line that it wrote.

    A line holds ``step``, ``total_steps``, ``samples``, ``seconds``, ``throughput`` (samples per second) and, in packs,
    ``packs_per_second`` and ``tokens_per_second``, ``compiling`` (whether these include compilation),
    ``learning_rate`` and the object ``metrics``.
    JSON knows no NaN and no infinity; they become null.

    A resumed run appends to the file of the run before it. If that one was killed in the middle of a line,
    the torn line is ended and stays; readers skip it.

    Args:
        path: the file; its folder must exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._file: Optional[TextIO] = None

    def begin(self, first_step: int, total_steps: int) -> None:
        """Opens the file."""
        torn = _ends_within_a_line(self.path)
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 - closed in end()
        if torn:
            self._file.write("\n")

    def period(self, period: Period) -> None:
        """Writes one line."""
        assert self._file is not None, "begin() opens the file"
        record: Dict[str, Any] = {
            "step": period.step,
            "total_steps": period.total_steps,
            "samples": period.samples,
            "seconds": round(period.seconds, 3),
            "throughput": round(period.throughput, 3),
            **{f"{unit}_per_second": round(rate, 3) for unit, rate in period.rates.items()},
            "compiling": period.compiling,
            "learning_rate": _finite(period.learning_rate),
            "metrics": {name: _finite(value) for name, value in period.metrics.items()},
        }
        self._file.write(json.dumps(record, allow_nan=False) + "\n")
        self._file.flush()

    def end(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _finite(value: Optional[float]) -> Optional[float]:
    return value if value is not None and math.isfinite(value) else None


def _ends_within_a_line(path: Path) -> bool:
    if not path.exists() or path.stat().st_size == 0:
        return False
    with open(path, "rb") as file:
        file.seek(-1, 2)
        return file.read(1) != b"\n"
