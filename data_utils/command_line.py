"""Shared code of the data commands: a progress display, number types for options, and a check of an output file."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Iterable, Optional

from tqdm import tqdm

from utilities.errors import UserError

PLAIN_LINE_SECONDS = 10.0
LARGEST_COUNT = 10**9


class Progress:
    """Shows a bar with rate and remaining time if standard error is a terminal, otherwise a line every ten seconds.

    Args:
        total: Sum of all ``advance`` calls; None if it is not known.
        label: The name of the work, shown first.
        unit: The unit of the total; ``B`` is printed as megabytes.

    Example:
        >>> with Progress(100, "reading", "B") as progress:
        ...     progress.advance(40)
    """

    def __init__(self, total: Optional[int], label: str, unit: str = "B"):
        self.total, self.label, self.unit = total, label, unit
        self.done = self.before = 0
        self.note = ""
        self.start = self.last = time.monotonic()
        self.bar = None
        if sys.stderr.isatty():
            scale = unit == "B"
            self.bar = tqdm(total=total, desc=label, unit=unit, unit_scale=scale, dynamic_ncols=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
        elif kind is None:
            self._line(ended=True)

    def advance(self, amount: int, note: str = "") -> None:
        """Add an amount of finished work; ``note`` is shown after it."""
        self.done += amount
        self.note = note or self.note
        if self.bar is not None:
            self.bar.set_postfix_str(self.note, refresh=False)
            self.bar.update(amount)
        elif time.monotonic() - self.last >= PLAIN_LINE_SECONDS:
            self._line()

    def skip(self, amount: int) -> None:
        """Add work that an earlier run finished; the estimate of the remaining time ignores it."""
        self.done += amount
        self.before += amount
        if self.bar is not None:
            self.bar.initial += amount
            self.bar.update(amount)

    def _line(self, ended: bool = False) -> None:
        self.last = time.monotonic()
        elapsed = self.last - self.start
        text = f"{self.label}: {self._amount(self.done)}"
        if self.total:
            text += f" of {self._amount(self.total)}"
            if self.before < self.done < self.total and not ended:
                text += f", {tqdm.format_interval(elapsed * (self.total - self.done) / (self.done - self.before))} left"
        text += f", {tqdm.format_interval(elapsed)} elapsed"
        if self.before:
            text += f", {self._amount(self.before)} from before"
        print(f"{text}{', ' + self.note if self.note else ''}", file=sys.stderr, flush=True)

    def _amount(self, value: float) -> str:
        if self.unit != "B":
            return f"{value:,.0f} {self.unit}"
        return f"{value / 1e6:,.1f} MB"


def make_parent(output: Path, inputs: Iterable[Path] = ()) -> None:
    """Make the folder of a file that is to be written.

    Raises:
        UserError: the file is a folder, or one of the ``inputs``.
    """
    if output.is_dir():
        raise UserError(f"--output {output}: is a folder; name a file")
    if output.exists() and any(map(output.samefile, inputs)):
        raise UserError(f"--output {output}: is the input, which it would replace; name another file")
    output.parent.mkdir(parents=True, exist_ok=True)


def fraction(text: str) -> float:
    """Parse a number from 0 to 1 (an argparse type)."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def natural(text: str, least: int = 0) -> int:
    """Parse a whole number of at least ``least`` (an argparse type)."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least {least}")
    return int(text)


def positive(text: str) -> int:
    """Parse a whole number from 1 to ``LARGEST_COUNT`` (an argparse type)."""
    value = natural(text, 1)
    if value > LARGEST_COUNT:
        raise argparse.ArgumentTypeError(f"{text} is more than {LARGEST_COUNT:,}")
    return value
