"""Shared code of the data commands: number types for options, and a check of an output file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Iterable

from utilities.errors import UserError

LARGEST_COUNT = 10**9


def make_parent(output: Path, inputs: Iterable[Path] = ()) -> None:
    """Make the folder of a file that is to be written."""
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
