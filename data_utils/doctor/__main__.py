"""``python -m data_utils.doctor FOLDER`` reads every record of a data set before days are spent on it.

It reports what is right and wrong; ``--fix OTHER`` writes the good records into a new data set.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from data_utils.command_line import Progress
from data_utils.completion_log import CompletionLog, Done, clear_work, identity_of, prepare_dataset_folder, run_units
from data_utils.doctor.findings import Diagnosis, diagnose, examine_file, examine_lines, merge_lines
from data_utils.doctor.records import Checker, DataSet, open_dataset
from data_utils.doctor.report import as_text, draw
from data_utils.parallel import Pool, add_pool_options, pool_of, with_absolute_paths
from data_utils.records.features import PACKS_FORMAT, SEQUENCES_FORMAT
from data_utils.records.index import index_path
from data_utils.records.manifest import write_manifest
from data_utils.records.writer import RecordFile, frame_records
from data_utils.tokenizer import VOCABULARY_NAME
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import write_atomically

PICTURE_NAME = "doctor.png"
COMPARED = 4_000_000  # at most so many records, and lines, are compared with one another, which bounds the memory
BYTES_OF_RECORD, BYTES_OF_LINE = 400, 100  # at least, roughly


def examine(data: DataSet, pool: Pool) -> Diagnosis:
    sampled = max(1, _bytes(data.files) // BYTES_OF_RECORD // COMPARED)
    examine_one = functools.partial(examine_file, Checker(data), data.form, sampled, data.manifest is not None)
    files = _each_file(pool, examine_one, data.files, "records")
    lines = None
    if data.corpus:
        sampled = max(1, _bytes(data.corpus) // BYTES_OF_LINE // COMPARED)
        lines = merge_lines(_each_file(pool, functools.partial(examine_lines, sampled), data.corpus, "lines"))
    return diagnose(data, files, lines)


def _bytes(files: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def _each_file(pool: Pool, function: Callable[[Path], Any], files: Sequence[Path], label: str) -> list[Any]:
    found: dict[Path, Any] = {}
    with Progress(_bytes(files), label) as progress:
        for result in pool.map(function, files, _bytes(files)):
            found[result.path] = result
            progress.advance(result.path.stat().st_size, f"{len(found):,} of {len(files):,} files")
    return [found[path] for path in files]


class _Unit(NamedTuple):
    number: int
    size: int
    path: Path


def _copy(checker: Checker, completion_log: CompletionLog, unit: _Unit) -> Done:
    kept = dropped = 0
    entry: dict[str, Any] | None = None
    target = completion_log.files / unit.path.name
    with RecordFile(target) as file:
        for chunk in checker.read(unit.path):
            file.add(frame_records(chunk.payloads))
            kept += len(chunk.payloads)
            dropped += len(chunk.problems)
        if kept:
            entry = file.finish()
    names = [target.name, index_path(target).name] if entry else []
    facts = {"entry": entry, "kept": kept, "dropped": dropped}
    return Done(unit.number, unit.size, completion_log.finish(unit.number, names, facts))


def repair(data: DataSet, output: Path, pool: Pool, overwrite: bool = False) -> tuple[int, int]:
    """Write the good records of a data set into another folder, with index and manifest.

    Names, order and everything else stay the same; a file without a good record is left out. A killed run can be
    resumed.

    Returns:
        The numbers of records that were kept and that were left out.

    Raises:
        UserError: The folder holds something else, or no record is good.
    """
    if output.resolve() == data.folder.resolve():
        raise UserError(f"--fix {output}: is the data set itself; name another folder")
    checker = Checker(data)
    special = {"cls_id": checker.special[2], "sep_id": checker.special[3]} if checker.special else {}
    form = {**data.form._asdict(), "vocabulary_size": data.vocab_size, "cls_id": None, "sep_id": None, **special}
    recipe, size = {"repair of": identity_of(data.files), "form": form}, _bytes(data.files)
    prepare_dataset_folder(output, recipe, overwrite)
    completion_log = CompletionLog.begin(output, "repair", recipe, read_back=False)
    units = [_Unit(number, path.stat().st_size, path) for number, path in enumerate(data.files)]
    entries: dict[int, dict[str, Any]] = {}
    kept = dropped = 0

    def on_done(unit: int, facts: dict[str, Any]) -> str:
        nonlocal kept, dropped
        kept, dropped = kept + facts["kept"], dropped + facts["dropped"]
        if facts["entry"]:
            entries[unit] = facts["entry"]
        return f"{kept:,} records, {dropped:,} left out"

    with Progress(size, "repair") as progress:
        run_units(
            pool, completion_log, functools.partial(_copy, checker, completion_log), units, size, progress, on_done
        )
    if not kept:
        raise UserError(f"{data.folder}: no record is good; make the data set again")
    _write_manifest(data, output, [entries[unit] for unit in sorted(entries)], kept)
    clear_work(output)
    return kept, dropped


def _write_manifest(data: DataSet, output: Path, entries: list[dict[str, Any]], records: int) -> None:
    """Write vocabulary and manifest; the counts of the text remain those of the whole data set, the only known ones."""
    manifest, form = data.manifest, data.form
    vocabulary = dict(manifest.vocabulary) if manifest else {}
    if data.vocabulary is not None:
        write_atomically(output / VOCABULARY_NAME, data.vocabulary.content)
        vocabulary = {"file": VOCABULARY_NAME, "sha256": data.vocabulary.sha256, "size": len(data.vocabulary.pieces)}
    settings = dict(manifest.settings) if manifest else {"max_seq_length": form.max_seq_length}
    if manifest is None and data.vocab_size is not None:
        settings["vocab_size"] = data.vocab_size
    totals = {**(manifest.totals if manifest else {}), "records": records}
    name = manifest.format if manifest else PACKS_FORMAT if form.max_sequences else SEQUENCES_FORMAT
    entropy = manifest.unigram_entropy_nats if manifest else None
    write_manifest(output, settings, vocabulary, entries, totals, entropy, name)


def _action(options: argparse.Namespace) -> int:
    with_absolute_paths(options)
    data = open_dataset(options.folder, options.vocab_file, options.sentences)
    with pool_of(options, options.fix or options.folder, data.files) as pool:
        found = examine(data, pool)
        print(as_text(data, found))
        picture = options.picture or options.folder / PICTURE_NAME
        try:
            draw(data, found, picture)
            print(f"picture: {picture}")
        except OSError as error:
            reason = f"cannot be written ({error.strerror}); name another file with --picture"
            print(f"no picture: {picture} {reason}", file=sys.stderr)
        if options.json:
            content = dataclasses.asdict(found)
            text = json.dumps(content, indent=1, ensure_ascii=False, default=lambda array: array.tolist())
            options.json.write_text(text + "\n", encoding="utf-8")
        if options.fix:
            kept, dropped = repair(data, options.fix, pool, options.overwrite)
            print(f"{options.fix}: {kept:,} good records, {dropped:,} left out")
    return 1 if found.wrong else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0 for a good data set, 1 if something is wrong, 2 if it cannot be read."""
    parser = make_parser("data_utils.doctor", "Examines a data set of pre-training records, packed or not.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the data set")
    parser.add_argument("--fix", type=Path, metavar="OUT", help="write the good records into another folder")
    parser.add_argument("--overwrite", action="store_true", help="replace a data set in the folder of --fix")
    parser.add_argument(
        "--vocab-file", type=Path, metavar="FILE", help="vocab.txt or tokenizer.json (default: the one in DIR)"
    )
    parser.add_argument("--sentences", type=Path, metavar="DIR", help="sentence files to look for repeated lines in")
    parser.add_argument("--picture", type=Path, metavar="FILE", help=f"where to draw (default: DIR/{PICTURE_NAME})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all findings as JSON")
    add_pool_options(parser)
    return run_main(parser, _action, arguments)


if __name__ == "__main__":
    sys.exit(main())
