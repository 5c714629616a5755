"""Lines that stand more than once in the corpus: captions, notices and lists that every article repeats."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_utils.doctor.examination import HASH_BYTES

SHOWN = 5
SHOWN_CHARACTERS = 80


class LineTask(NamedTuple):
    """What a worker must know: of every so many lines, one is looked at (chosen by its content)."""

    sampled: int


class FileLines(NamedTuple):
    """The sampled lines of a file.

    Attributes:
        path: of the file.
        lines, sampled: that are not empty; of those, looked at.
        digests: (K,) uint64, each different one once.
        counts: (K,) how often it stands there.
        places: (K,) byte at which it first stands.
    """

    path: str
    lines: int
    sampled: int
    digests: np.ndarray
    counts: np.ndarray
    places: np.ndarray


class LineFindings(NamedTuple):
    """Of all files.

    Attributes:
        lines: that are not empty.
        repeated: share of them that an earlier one equals.
        frequent: the most frequent of the repeated ones, and about how often each stands there.
    """

    lines: int
    repeated: float
    frequent: list[tuple[str, int]]


def examine_lines(task: LineTask, path: Path) -> FileLines:
    """Looks through a sentence file."""
    digests: list[bytes] = []
    places: list[int] = []
    lines = offset = 0
    with open(path, "rb") as stream:
        for line in stream:
            text = line.strip()
            if text:
                lines += 1
                digest = hashlib.blake2b(text, digest_size=HASH_BYTES).digest()
                if int.from_bytes(digest[:4], "big") % task.sampled == 0:
                    digests.append(digest)
                    places.append(offset)
            offset += len(line)
    found, first, counts = np.unique(np.frombuffer(b"".join(digests), np.uint64), return_index=True, return_counts=True)
    return FileLines(str(path), lines, len(digests), found, counts, np.array(places, np.int64)[first])


def merge_lines(files: list[FileLines]) -> LineFindings:
    """The findings of all files together."""
    sampled = sum(file.sampled for file in files)
    if not sampled:
        return LineFindings(0, 0.0, [])
    digests, inverse = np.unique(np.concatenate([file.digests for file in files]), return_inverse=True)
    counts = np.bincount(inverse, np.concatenate([file.counts for file in files])).astype(np.int64)
    frequent = []
    for place in np.argsort(-counts, kind="stable")[:SHOWN].tolist():
        if counts[place] > 1:
            frequent.append((_line(digests[place], files), int(counts[place])))
    lines = sum(file.lines for file in files)
    return LineFindings(lines, 1 - digests.size / sampled, frequent)


def _line(digest: np.uint64, files: list[FileLines]) -> str:
    for file in files:
        at = int(np.searchsorted(file.digests, digest))
        if at < file.digests.size and file.digests[at] == digest:
            with open(file.path, "rb") as stream:
                stream.seek(int(file.places[at]))
                text = stream.readline().decode("utf-8", "replace").strip()
            return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
    raise AssertionError("the digest came from one of the files")
