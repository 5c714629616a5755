"""First pass: how long every record is, and how many masked positions it has; nothing else of it is kept."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

import numpy as np

from data_utils.command_line import Progress
from data_utils.packing.source import Source, source_of
from data_utils.parallel import Pool
from data_utils.records.writer import write_atomically
from data_utils.resume import WORK_FOLDER, Done, Ledger, digest_of, run_units

RECORDS_OF_UNIT = 1 << 17
_RECORDS_AT_ONCE = 4096
_BYTES_OF_TOKEN = 4  # in a file, about: only to tell a small data set from a large one


class Stretch(NamedTuple):
    """A work unit: records, or packs, that follow one another.

    Attributes:
        number: of the unit.
        begin, end: of the records.
    """

    number: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Records."""
        return self.end - self.begin


def stretches(count: int, each: int) -> List[Stretch]:
    """All of them, cut into pieces."""
    return [
        Stretch(number, begin, min(begin + each, count)) for number, begin in enumerate(range(0, count, max(1, each)))
    ]


class Survey(NamedTuple):
    """What the first pass found; both ``(R,)`` uint16, mapped from a file.

    Attributes:
        lengths: tokens of each record.
        predictions: its masked positions.
    """

    lengths: np.ndarray
    predictions: np.ndarray


class _Task(NamedTuple):
    folder: str
    identity: str
    ledger: Ledger


def _name(unit: int) -> str:
    return f"{WORK_FOLDER}/measured_{unit:06d}.bin"


def _measure(task: _Task, stretch: Stretch) -> Done:
    source = source_of(task.folder, task.identity)
    positions = np.arange(stretch.begin, stretch.end, dtype=np.int64)
    parts = [
        source.measure(positions[begin : begin + _RECORDS_AT_ONCE])
        for begin in range(0, positions.size, _RECORDS_AT_ONCE)
    ]
    write_atomically(task.ledger.files / _name(stretch.number), np.concatenate(parts).astype("<u2").tobytes())
    facts = {"longest": int(max(part[:, 0].max() for part in parts))}
    return Done(stretch.number, stretch.size, task.ledger.finish(stretch.number, [_name(stretch.number)], facts))


def survey(source: Source, output: Path, recipe: Dict[str, Any], pool: Pool) -> Survey:
    """Measures all records; what an earlier run of the same recipe has measured is taken from it.

    Args:
        source: the records.
        output: folder of the packed data set; the measures go to its work folder.
        recipe: what the records are.
        pool: workers.
    """
    task = _Task(str(source.folder.absolute()), digest_of(recipe), Ledger.begin(output, "measure", recipe))
    units = stretches(source.count, RECORDS_OF_UNIT)
    longest = 0

    def on_unit(_: int, facts: Dict[str, Any]) -> str:
        nonlocal longest
        longest = max(longest, facts["longest"])
        return f"longest {longest} tokens"

    size = source.count * source.shape.max_seq_length * _BYTES_OF_TOKEN
    with Progress(source.count, "measure", "records") as progress:
        run_units(pool, task.ledger, functools.partial(_measure, task), units, size, progress, on_unit)
    path = output / WORK_FOLDER / "measured.bin"
    with open(path, "wb") as stream:
        for unit in units:
            stream.write((output / _name(unit.number)).read_bytes())
    measured = np.memmap(path, "<u2", "r").reshape(-1, 2)
    assert len(measured) == source.count
    return Survey(measured[:, 0], measured[:, 1])
