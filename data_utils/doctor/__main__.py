"""``python -m data_utils.doctor FOLDER`` reads every record of a data set before days are spent on it.

It reports what is wrong; ``--fix OTHER`` writes the good records into a new data set.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_utils.command_line import Progress
from data_utils.completion_log import clear_work, identify_files, prepare_dataset_folder
from data_utils.doctor.findings import Diagnosis, FileFindings, diagnose, examine_file
from data_utils.doctor.records import Checker, DataSet, open_dataset
from data_utils.parallel import Pool, add_pool_options, make_pool, with_absolute_paths
from data_utils.records.features import PACKS_FORMAT, SEQUENCES_FORMAT
from data_utils.records.manifest import VALIDATION_FOLDER, write_manifest
from data_utils.tokenizer import VOCABULARY_NAME
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import write_atomically


def examine(data: DataSet, pool: Pool, output: Path | None) -> list[FileFindings]:
    """Read all files; the good records are written into ``output`` if it is given."""
    size = sum(path.stat().st_size for path in data.files)
    function = functools.partial(examine_file, Checker(data), output)
    findings: dict[Path, FileFindings] = {}
    with Progress(size, "records") as progress:
        for result in pool.map(function, data.files, size):
            findings[result.path] = result
            progress.advance(result.path.stat().st_size, f"{len(findings):,} of {len(data.files):,} files")
    return [findings[path] for path in data.files]


def prepare_repair(data: DataSet, output: Path, overwrite: bool) -> None:
    """Prepare the folder for the good records; a ``UserError`` says that it contains something else."""
    if output.resolve() == data.folder.resolve():
        raise UserError(f"--fix {output}: is the data set itself; name another folder")
    vocabulary = data.vocabulary.sha256 if data.vocabulary is not None else data.vocab_size
    recipe = {"repair of": identify_files(data.files), "form": data.form._asdict(), "vocabulary": vocabulary}
    prepare_dataset_folder(output, recipe, overwrite)


def finish_repair(data: DataSet, output: Path, files: Sequence[FileFindings]) -> None:
    """Write vocabulary and manifest; the counts of the text remain those of the whole data set."""
    entries: list[dict[str, Any]] = [file.repaired for file in files if file.repaired is not None]
    if not entries:
        raise UserError(f"{data.folder}: no record is good; make the data set again")
    manifest, form = data.manifest, data.form
    vocabulary = dict(manifest.vocabulary) if manifest else {}
    if data.vocabulary is not None:
        write_atomically(output / VOCABULARY_NAME, data.vocabulary.content)
        vocabulary = {"file": VOCABULARY_NAME, "sha256": data.vocabulary.sha256, "size": len(data.vocabulary.pieces)}
    settings = dict(manifest.settings) if manifest else {"max_seq_length": form.max_seq_length}
    if manifest is None and data.vocab_size is not None:
        settings["vocab_size"] = data.vocab_size
    totals = {**(manifest.totals if manifest else {}), "records": sum(entry["records"] for entry in entries)}
    if form.max_sequences:
        totals["sequences"] = sum(file.counts["sequences"] for file in files)
    name = manifest.format if manifest else PACKS_FORMAT if form.max_sequences else SEQUENCES_FORMAT
    write_manifest(
        output, settings, vocabulary, entries, totals, manifest.unigram_entropy_nats if manifest else None, name
    )
    clear_work(output)


def as_text(data: DataSet, result: Diagnosis) -> str:
    """Return the diagnosis as text for a terminal."""
    form, counts = data.form, result.counts
    what = f"packs of up to {form.max_sequences} sequences" if form.max_sequences else "sequences"
    lines = [
        f"{data.folder}: {result.records:,} records in {len(data.files):,} files; {what}, {form.max_seq_length} tokens,"
        f" {form.max_predictions} predictions" + (f", vocabulary of {data.vocab_size:,}" if data.vocab_size else ""),
        f"{counts['records']:,} good records, {result.bad:,} bad ones, {counts['tokens']:,} tokens",
        *result.shares,
    ]
    if result.problems:
        lines += ["bad records:", *(f"  {problem}" for problem in result.problems)]
    if result.wrong:
        lines += ["Something is wrong:", *(f"  - {text}" for text in result.wrong)]
        if result.bad and counts["records"]:
            lines.append(f"To keep the good records alone: python -m data_utils.doctor {data.folder} --fix OTHER")
    else:
        lines.append("The data set is fine.")
    if result.notes:
        lines += ["Worth knowing:", *(f"  - {note}" for note in result.notes)]
    return "\n".join(lines)


def _action(options: argparse.Namespace) -> int:
    with_absolute_paths(options)
    data = open_dataset(options.folder, options.vocab_file)
    if options.fix:
        prepare_repair(data, options.fix, options.overwrite)
    with make_pool(options, options.fix or options.folder, data.files) as pool:
        files = examine(data, pool, options.fix)
    result = diagnose(data, files)
    print(as_text(data, result))
    if options.fix:
        finish_repair(data, options.fix, files)
        print(f"{options.fix}: {result.counts['records']:,} good records, {result.bad:,} left out")
        if (options.folder / VALIDATION_FOLDER).exists():
            print(f"{options.folder / VALIDATION_FOLDER}: held-out records are a data set of their own; not copied")
    return 1 if result.wrong else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0 for a good data set, 1 if something is wrong, 2 if it cannot be read."""
    parser = make_parser("data_utils.doctor", "Examines a data set of pre-training records, packed or not.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the data set")
    parser.add_argument("--fix", type=Path, metavar="OUT", help="write the good records into another folder")
    parser.add_argument("--overwrite", action="store_true", help="replace a data set in the folder of --fix")
    parser.add_argument(
        "--vocab-file", type=Path, metavar="FILE", help="vocab.txt or tokenizer.json (default: the one in DIR)"
    )
    add_pool_options(parser)
    return run_main(parser, _action, arguments)


if __name__ == "__main__":
    sys.exit(main())
