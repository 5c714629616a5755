"""The two passes from units of the corpus to TFRecord files, over the workers; each unit of work is done once."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_utils.parallel import Pool
from data_utils.records.writer import index_path
from data_utils.text.columns import token_type
from data_utils.text.command_line import Progress
from data_utils.text.instances import Settings, UnitCounts, make_unit, quiet_tokenizers
from data_utils.text.ledger import WORK_FOLDER, Ledger
from data_utils.text.running import Done, run_units
from data_utils.text.shuffle import Layout, gather, plan_layout, read_pieces, write_records, write_spill
from data_utils.text.units import Unit
from data_utils.tokenizer import VOCABULARY_NAME

PREFIX = "wiki"
BYTES_NEEDED = 2.5  # on disk for a byte of text and a pass over it, about: the records, and what is between the passes
SCATTER, GATHER = "scatter", "gather"


class RecordsJob(NamedTuple):
    """What a worker must know.

    Attributes:
        output: folder of the data set.
        vocabulary_size: pieces.
        settings: of the records.
        layout: of the shuffle.
        text_bytes: of the corpus.
        scattered, gathered: done-records of the passes.
    """

    output: Path
    vocabulary_size: int
    settings: Settings
    layout: Layout
    text_bytes: int
    scattered: Ledger
    gathered: Ledger

    @classmethod
    def plan(
        cls,
        units: Sequence[Unit],
        output: Path,
        vocabulary_size: int,
        settings: Settings,
        recipe: Mapping[str, Any],
    ) -> RecordsJob:
        """Divides the work; the vocabulary lies in the folder already."""
        text_bytes = sum(unit.size for unit in units)
        layout = plan_layout(len(units), text_bytes, settings.duplicate_factor)
        # What the first pass writes carries its own checksums, and the manifest has those of the files.
        ledgers = [Ledger.begin(output, step, recipe, read_back=False) for step in (SCATTER, GATHER)]
        return cls(output, vocabulary_size, settings, layout, text_bytes, *ledgers)

    def spill(self, unit: int) -> Path:
        """Where the first pass writes a unit's records."""
        return self.output / WORK_FOLDER / f"unit_{unit:06d}.spill"

    def file(self, number: int) -> Path:
        """A TFRecord file; names sort as their numbers do."""
        digits = max(3, len(str(self.layout.files - 1)))
        return self.output / f"{PREFIX}_{number:0{digits}d}.tfrecord"

    def pieces(self, units: Sequence[Unit]) -> np.ndarray:
        """(V,) how often each piece occurs in the corpus; after the first pass."""
        counts = np.zeros(self.vocabulary_size, np.int64)
        for unit in units:
            counts += read_pieces(self.spill(unit.number), self.layout, self.vocabulary_size)
        return counts


class Strip(NamedTuple):
    """Work of the second pass: a strip of the range of keys.

    Attributes:
        number: of the strip.
        size: about so many records.
        units: that it is gathered from.
    """

    number: int
    size: int
    units: int


def scatter_all(job: RecordsJob, units: Sequence[Unit], pool: Pool) -> dict[str, int]:
    """First pass: the records of all units.

    Returns:
        ``records`` and the sums of ``UnitCounts``.
    """
    _tell_of_space(job)
    totals = dict.fromkeys(("records", *UnitCounts._fields), 0)

    def on_done(_: int, facts: dict[str, Any]) -> str:
        for name in totals:
            totals[name] += facts[name]
        return f"{totals['documents']:,} documents, {totals['records']:,} records"

    with Progress(job.text_bytes, "examples") as progress:
        function = functools.partial(_scatter, job)
        run_units(pool, job.scattered, function, units, job.text_bytes, progress, on_done)
    return totals


def _scatter(job: RecordsJob, unit: Unit) -> Done:
    quiet_tokenizers()
    result = make_unit(unit, str(job.output / VOCABULARY_NAME), job.settings)
    path = job.spill(unit.number)
    write_spill(path, result.columns, result.pieces, job.layout)
    facts = {"records": result.columns.keys.size, **result.counts._asdict()}
    name = path.relative_to(job.output).as_posix()
    return Done(unit.number, unit.size, job.scattered.finish(unit.number, [name], facts))


def gather_all(job: RecordsJob, units: Sequence[Unit], records: int, pool: Pool) -> list[dict[str, Any]]:
    """Second pass: the TFRecord files.

    Returns:
        Their entries in the manifest, in order.
    """
    entries: dict[str, dict[str, Any]] = {}
    written = 0

    def on_done(_: int, facts: dict[str, Any]) -> str:
        nonlocal written
        entries.update({entry["name"]: entry for entry in facts["entries"]})
        written += sum(entry["bytes"] for entry in facts["entries"])
        return f"{len(entries):,} files, {written / 1e6:,.1f} MB"

    share = -(-records // job.layout.strips)
    strips = [Strip(number, share, len(units)) for number in range(job.layout.strips)]
    with Progress(share * job.layout.strips, "shuffle", "records") as progress:
        run_units(pool, job.gathered, functools.partial(_gather, job), strips, job.text_bytes, progress, on_done)
    return [entries[name] for name in sorted(entries)]


def _gather(job: RecordsJob, strip: Strip) -> Done:
    spills = [job.spill(unit) for unit in range(strip.units)]
    sizes = (job.settings.max_seq_length, job.settings.max_predictions_per_seq)
    entries = [
        write_records(job.file(number), columns, *sizes)
        for number, columns in gather(spills, strip.number, job.layout, token_type(job.vocabulary_size))
        if columns.keys.size
    ]
    names = [name for entry in entries for name in (entry["name"], index_path(Path(entry["name"])).name)]
    return Done(strip.number, strip.size, job.gathered.finish(strip.number, names, {"entries": entries}))


def _tell_of_space(job: RecordsJob) -> None:
    """A word before hours of work, where the disk will hardly do."""
    needed = job.text_bytes * job.settings.duplicate_factor * BYTES_NEEDED
    needed -= sum(path.stat().st_size for path in (job.output / WORK_FOLDER).glob("*.spill"))
    free = shutil.disk_usage(job.output).free
    if needed > free:
        text = f"examples: about {needed / 1e9:,.1f} GB will be needed in {job.output}, {free / 1e9:,.1f} GB are free"
        print(f"{text}; with less, the run ends, and goes on when there is more", file=sys.stderr)
