"""Shared code of the data commands: a progress display, number types for options, and a check of an output file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Iterable, Optional

from tqdm import tqdm

from utilities.errors import UserError

BAR_SECONDS, LINE_SECONDS = 0.1, 10.0  # between two drawings, on a terminal and in a file
LARGEST_COUNT = 10**9


def progress_bar(total: Optional[int], label: str, unit: str = "B") -> tqdm:
    """Return a bar with rate and remaining time on standard error, which is drawn rarely if that is no terminal.

    Args:
        total: Sum of all amounts that ``update`` gets; None if it is not known.
        label: The name of the work, shown first.
        unit: The unit of the total.

    Example:
        >>> with progress_bar(100, "reading", "B") as progress:
        ...     _ = progress.update(40)
    """
    seconds = BAR_SECONDS if sys.stderr.isatty() else LINE_SECONDS
    if unit != "B":
        unit = f" {unit}"
    return tqdm(
        total=total, desc=label, unit=unit, unit_scale=unit == "B", dynamic_ncols=True, mininterval=seconds, miniters=1
    )


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
