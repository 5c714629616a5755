"""The good records of a data set, as a new one."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

from data_utils.command_line import Progress
from data_utils.doctor.checks import Form
from data_utils.doctor.examination import read_chunks
from data_utils.doctor.frames import boundaries_of
from data_utils.doctor.opening import DataSet
from data_utils.parallel import Pool
from data_utils.records.features import PACKS_FORMAT, SEQUENCES_FORMAT
from data_utils.records.writer import RecordFile, frame_records, index_path, write_atomically, write_manifest
from data_utils.resume import Done, Ledger, forget, identity_of, prepare_dataset_folder, run_units
from data_utils.tokenizer import VOCABULARY_NAME
from utilities.errors import UserError


class Repair(NamedTuple):
    """What a repair came to: records that were kept, and left out."""

    kept: int
    dropped: int


class _Unit(NamedTuple):
    """A file to be copied without its bad records."""

    number: int
    size: int
    path: Path


class _Task(NamedTuple):
    form: Form
    ledger: Ledger


def _copy(task: _Task, unit: _Unit) -> Done:
    kept = dropped = 0
    entry: dict[str, Any] | None = None
    target = task.ledger.files / unit.path.name
    with RecordFile(target) as file:
        for chunk in read_chunks(unit.path, boundaries_of(unit.path)[0], task.form):
            file.add(frame_records(chunk.payloads))
            kept += len(chunk.payloads)
            dropped += len(chunk.problems)
        if kept:
            entry = file.finish()
    names = [target.name, index_path(target).name] if entry else []
    facts = {"entry": entry, "kept": kept, "dropped": dropped}
    return Done(unit.number, unit.size, task.ledger.finish(unit.number, names, facts))


def repair(data: DataSet, output: Path, pool: Pool, overwrite: bool = False) -> Repair:
    """Writes the good records of a data set into another folder, with index and manifest.

    Names, order and everything else stay; a file without a good record is left out. A run that was killed goes on where
    it stopped.

    Args:
        data: the data set.
        output: folder.
        pool: workers.
        overwrite: whether a data set in the folder may be replaced.

    Raises:
        UserError: the folder is taken, or no record is good.
    """
    if output.resolve() == data.folder.resolve():
        raise UserError(f"--fix {output}: is the data set itself; name another folder")
    recipe = {"repair of": identity_of(data.files), "form": data.form._asdict()}
    prepare_dataset_folder(output, recipe, overwrite)
    task = _Task(data.form, Ledger.begin(output, "repair", recipe, read_back=False))
    units = [_Unit(number, path.stat().st_size, path) for number, path in enumerate(data.files)]
    entries: dict[int, dict[str, Any]] = {}
    totals = {"kept": 0, "dropped": 0}

    def on_done(unit: int, facts: dict[str, Any]) -> str:
        if facts["entry"]:
            entries[unit] = facts["entry"]
        for name in totals:
            totals[name] += facts[name]
        return f"{totals['kept']:,} records, {totals['dropped']:,} left out"

    size = sum(unit.size for unit in units)
    with Progress(size, "repair") as progress:
        run_units(pool, task.ledger, functools.partial(_copy, task), units, size, progress, on_done)
    if not entries:
        raise UserError(f"{data.folder}: no record is good; make the data set again")
    _finish(data, output, [entries[unit] for unit in sorted(entries)], totals["kept"])
    forget(output)
    return Repair(totals["kept"], totals["dropped"])


def _finish(data: DataSet, output: Path, entries: list[dict[str, Any]], records: int) -> None:
    """Vocabulary and manifest; counts of the text are those of the whole, for nothing else is known of it."""
    manifest, form = data.manifest, data.form
    vocabulary: dict[str, Any] = dict(manifest.vocabulary) if manifest else {}
    if data.vocabulary is not None:
        write_atomically(output / VOCABULARY_NAME, data.vocabulary.path.read_bytes())
        size = len(data.vocabulary.pieces)
        vocabulary = {"file": VOCABULARY_NAME, "sha256": data.vocabulary.sha256, "size": size}
    settings = dict(manifest.settings) if manifest else {"max_seq_length": form.max_seq_length}
    if manifest is None and form.vocabulary_size is not None:
        settings["vocab_size"] = form.vocabulary_size
    totals = {**(manifest.totals if manifest else {}), "records": records}
    name = manifest.format if manifest else (PACKS_FORMAT if form.is_packed else SEQUENCES_FORMAT)
    entropy = manifest.unigram_entropy_nats if manifest else None
    write_manifest(output, settings, vocabulary, entries, totals, entropy, name)
