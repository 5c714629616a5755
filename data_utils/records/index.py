"""Reads and writes the index next to a record file, which says where each record begins.

The format is the ``tfrecord`` package's: a text file with a line ``offset length`` for each record, where the length
includes the framing.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Optional

import numpy as np

from data_utils.records.framing import FRAMING_BYTES, record_boundaries, unreadable
from utilities.errors import UserError
from utilities.files import replacing

logger = logging.getLogger(__name__)

_LEGAL_BYTES = b"0123456789 \t\r\n"


def index_path(record_path: Path) -> Path:
    """Return the path at which an index is written: ``wiki_000.index`` for ``wiki_000.tfrecord``."""
    return record_path.with_suffix(".index")


def find_index(record_path: Path) -> Optional[Path]:
    """Return the index of a record file under any of the names in use, or None."""
    candidates = (
        index_path(record_path),
        record_path.with_name(record_path.name + ".index"),
        record_path.with_suffix(".tfindex"),  # the ``tfrecord`` package's tool writes this for folders
    )
    return next((path for path in candidates if path.exists()), None)


def load_index(path: Path, record_path: Path, record_bytes: int) -> np.ndarray:
    """Parse an index, check that it covers its file without gaps, and return it as ``record_boundaries`` does."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    illegal = text.translate(None, _LEGAL_BYTES)
    if illegal:
        line = text[: text.index(illegal[:1])].count(b"\n") + 1
        raise _misfit(path, record_path, f"line {line} is not 'offset length'")
    # The text contains digits and blanks only, which this parser always accepts; 20 million lines take about a second.
    numbers = np.fromstring(text, dtype=np.int64, sep=" ") if text.strip() else np.empty(0, np.int64)
    if numbers.size % 2:
        raise _misfit(path, record_path, "a line is not 'offset length'")
    end = int(numbers[-2]) + int(numbers[-1]) if numbers.size else 0
    if end != record_bytes:
        raise _misfit(path, record_path, f"it ends at byte {end}, the file has {record_bytes} bytes")
    offsets, lengths = numbers[0::2], numbers[1::2]
    boundaries = np.append(offsets, record_bytes)
    wrong = (lengths < FRAMING_BYTES) | (lengths != np.diff(boundaries))
    if offsets.size and offsets[0] != 0:
        wrong[0] = True
    if wrong.any():
        line = int(np.argmax(wrong))
        reason = f"line {line + 1} ('{offsets[line]} {lengths[line]}') leaves a gap or an overlap"
        raise _misfit(path, record_path, reason)
    return boundaries


def build_index(record_path: Path) -> np.ndarray:
    """Return the boundaries of a file's records from their headers, and save its index where the folder is writable."""
    boundaries, damage = record_boundaries(record_path)
    if damage is not None:
        raise damage
    target = index_path(record_path)
    try:
        with replacing(target) as file:
            np.savetxt(file, np.stack([boundaries[:-1], np.diff(boundaries)], axis=1), "%d")
    except OSError as error:
        logger.warning("%s could not be written (%s): the index is built again at every start", target, error.strerror)
    return boundaries


def _misfit(path: Path, record_path: Path, reason: str) -> UserError:
    fix = "delete it, and the next start builds it again"
    return UserError(f"{path}: is not the index of {record_path.name} as it is now: {reason}; {fix}")
