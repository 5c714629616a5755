"""``python -m data_utils.doctor FOLDER``: examines a data set; ends with 0 where it is well, with 1 where it is not."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from data_utils.command_line import Progress, make_parser, run_main
from data_utils.doctor.diagnosis import Diagnosis, diagnose
from data_utils.doctor.examination import FileFindings, Task, examine_file
from data_utils.doctor.lines import LineFindings, LineTask, examine_lines, merge_lines
from data_utils.doctor.opening import DataSet, open_dataset
from data_utils.doctor.repair import repair
from data_utils.doctor.report import as_text, draw
from data_utils.parallel import Pool, add_pool_options, pool_of, with_absolute_paths

PICTURE_NAME = "doctor.png"
# So many are compared with one another, chosen by their content, whatever the size of the data: memory stays bounded.
COMPARED_RECORDS = COMPARED_LINES = 4_000_000
BYTES_OF_RECORD, BYTES_OF_LINE = 400, 100  # about, at least

Findings = TypeVar("Findings")


class _Numbered(NamedTuple):
    number: int
    size: int
    findings: Any


def _apply(function: Callable[[Path], Any], item: tuple[int, Path]) -> _Numbered:
    number, path = item
    return _Numbered(number, path.stat().st_size, function(path))


def _over_files(pool: Pool, function: Callable[[Path], Findings], files: Sequence[Path], label: str) -> list[Findings]:
    """What the function gives for each file, in order."""
    size = sum(path.stat().st_size for path in files)
    found: dict[int, Findings] = {}
    with Progress(size, label) as progress:
        for done in pool.map(functools.partial(_apply, function), enumerate(files), size):
            found[done.number] = done.findings
            progress.advance(done.size, f"{len(found):,} of {len(files):,} files")
    return [found[number] for number in range(len(files))]


def examine(data: DataSet, pool: Pool) -> Diagnosis:
    """Reads all of a data set, and judges."""
    size = sum(path.stat().st_size for path in data.files)
    sampled = max(1, size // BYTES_OF_RECORD // COMPARED_RECORDS)
    task = Task(data.form, data.special, sampled, with_checksums=data.manifest is not None)
    files: list[FileFindings] = _over_files(pool, functools.partial(examine_file, task), data.files, "records")
    return diagnose(data, files, _examine_corpus(data, pool), sampled)


def _examine_corpus(data: DataSet, pool: Pool) -> LineFindings | None:
    if not data.corpus:
        return None
    size = sum(path.stat().st_size for path in data.corpus)
    task = LineTask(max(1, size // BYTES_OF_LINE // COMPARED_LINES))
    return merge_lines(_over_files(pool, functools.partial(examine_lines, task), data.corpus, "lines"))


def _picture(data: DataSet, found: Diagnosis, path: Path) -> None:
    try:
        draw(data, found, path)
        print(f"picture: {path}")
    except OSError as error:
        print(
            f"no picture: {path} cannot be written ({error.strerror}); name another file with --picture",
            file=sys.stderr,
        )


def _action(options: argparse.Namespace) -> int:
    with_absolute_paths(options)
    data = open_dataset(options.folder, options.vocab_file, options.sentences)
    output = options.fix or options.folder
    with pool_of(options, output, data.files) as pool:
        found = examine(data, pool)
        print(as_text(data, found))
        _picture(data, found, options.picture or options.folder / PICTURE_NAME)
        if options.json:
            options.json.write_text(json.dumps(found.as_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        if options.fix:
            done = repair(data, options.fix, pool, options.overwrite)
            print(f"{options.fix}: {done.kept:,} good records, {done.dropped:,} left out")
    return 0 if found.is_well else 1


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns 0 for a data set that is well, 1 where something is wrong, 2 where it cannot be told."""
    parser = make_parser("data_utils.doctor", "Examines a data set of pre-training records, packed or not.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the data set")
    parser.add_argument("--fix", type=Path, metavar="OUT", help="write the good records into another folder")
    parser.add_argument("--overwrite", action="store_true", help="replace a data set in the folder of --fix")
    parser.add_argument("--vocab-file", type=Path, metavar="FILE", help="vocab.txt (default: the one in DIR)")
    parser.add_argument("--sentences", type=Path, metavar="DIR", help="sentence files to look for repeated lines in")
    parser.add_argument("--picture", type=Path, metavar="FILE", help=f"where to draw (default: DIR/{PICTURE_NAME})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all findings as JSON")
    add_pool_options(parser)
    return run_main(parser, _action, arguments)


if __name__ == "__main__":
    sys.exit(main())
