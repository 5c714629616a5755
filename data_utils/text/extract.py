"""Step ``extract``: turns a dump, or any other input, into JSON Lines of clean prose.

Each line is ``{"title": …, "text": …}``, paragraphs separated by a newline. ``python -m data_utils.text`` makes
sentences from the input without this step; use it to inspect the text or for other programs.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from data_utils.command_line import Progress, make_parent, natural
from data_utils.completion_log import CompletionLog, Done, run_units
from data_utils.parallel import Pool, add_pool_options, make_pool, with_absolute_paths
from data_utils.text.documents import DEFAULT_MAX_REJECTED, RejectedDocument, RejectedDocuments, describe_error
from data_utils.text.sources import (
    Source,
    add_source_options,
    parts_folder,
    source_from_options,
    standard_input_copied,
)
from data_utils.text.units import StreamedUnit, Unit
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import replacing, write_atomically

DEFAULT_MIN_CHARACTERS = 100
COPY_BYTES = 1 << 22


class Prose(NamedTuple):
    """A document's paragraphs of prose."""

    title: str
    paragraphs: list[str]


def clean_documents(
    source: Source, unit: Unit | StreamedUnit, min_characters: int
) -> Iterator[Prose | RejectedDocument]:
    """Yield the prose of a unit's documents that are long enough, and the rejected documents."""
    for document in source.documents(unit):
        if isinstance(document, RejectedDocument):
            yield document
            continue
        try:
            paragraphs = source.paragraphs(document)
        except Exception as error:  # no bad article may end the run
            yield RejectedDocument(document.title, f"cannot be cleaned: {describe_error(error)}")
            continue
        if sum(map(len, paragraphs)) >= max(min_characters, 1):
            yield Prose(document.title, paragraphs)


class UnitText(NamedTuple):
    """The text made from a unit's documents."""

    text: str  # content of the unit's file, which is not written if it is empty
    rejected: list[RejectedDocument]
    counts: dict[str, int]  # numbers of ``documents``, ``words`` and others, to be summed over all units


Convert = Callable[[Source, "Unit | StreamedUnit"], UnitText]


class SourceResult(NamedTuple):
    """The result for a source: names of the units' files in order, sums over all units, and rejected documents."""

    files: list[str]
    counts: dict[str, int]
    rejected: int


def _convert_unit(
    convert: Convert, source: Source, pattern: str, completion_log: CompletionLog, unit: Unit | StreamedUnit
) -> Done:
    result = convert(source, unit)
    names = [pattern.format(unit.number)] if result.text else []
    for name in names:
        write_atomically(completion_log.files / name, result.text)
    facts = {"files": names, "set_aside": result.rejected, **result.counts}
    return Done(unit.number, unit.size, completion_log.finish(unit.number, names, facts))


def convert_source(
    source: Source,
    convert: Convert,
    completion_log: CompletionLog,
    pattern: str,
    label: str,
    rejected: RejectedDocuments,
    pool: Pool,
) -> SourceResult:
    """Convert the documents of a source unit by unit, in workers; units that are done already are skipped.

    Args:
        source: The input.
        convert: Function that converts one unit.
        completion_log: Completion records of the step; files are written to its folder.
        pattern: Name of a unit's file, formatted with the unit's number.
        label: Name shown with the progress.
        rejected: Collects the documents that cannot be used.
        pool: Workers.

    Raises:
        UserError: The input is broken, or too many documents cannot be used.
    """
    files: dict[int, list[str]] = {}
    counts: dict[str, int] = {"documents": 0, "words": 0}

    def on_done(unit: int, facts: dict[str, Any]) -> str:
        files[unit] = facts.pop("files")
        rejected.add(unit, facts.pop("set_aside"))
        for name, count in facts.items():
            counts[name] = counts.get(name, 0) + count
        return f"{counts['documents']:,} articles, {counts['words']:,} words{rejected.note()}"

    function = functools.partial(_convert_unit, convert, source.for_workers(), pattern, completion_log)
    with Progress(source.total_bytes, label) as progress:
        run_units(pool, completion_log, function, source.units(), source.total_bytes, progress, on_done)
    rejected.write()
    return SourceResult([name for unit in sorted(files) for name in files[unit]], counts, rejected.count)


def no_prose(rejected: RejectedDocuments) -> UserError:
    text = "the input contains no prose: no document is long enough (see --min-characters)"
    if rejected.count:
        text += f", and {rejected.count:,} could not be used, the first: {rejected.first()}"
    return UserError(text)


def _to_json_lines(min_characters: int, source: Source, unit: Unit | StreamedUnit) -> UnitText:
    lines, words, bad = [], 0, []
    for prose in clean_documents(source, unit, min_characters):
        if isinstance(prose, RejectedDocument):
            bad.append(prose)
            continue
        text = "\n".join(prose.paragraphs)
        words += len(text.split())
        lines.append(json.dumps({"title": prose.title, "text": text}, ensure_ascii=False) + "\n")
    return UnitText("".join(lines), bad, {"documents": len(lines), "words": words})


def extract(
    source: Source,
    output: Path,
    pool: Pool,
    min_characters: int = DEFAULT_MIN_CHARACTERS,
    max_bad_articles: int = DEFAULT_MAX_REJECTED,
) -> SourceResult:
    """Write the clean documents of a source as JSON Lines, atomically.

    Raises:
        UserError: The input is broken, contains no prose, or has more bad articles than allowed.
    """
    make_parent(output, source.files)
    parts = parts_folder(output)
    parts.mkdir(parents=True, exist_ok=True)
    completion_log = CompletionLog.begin(
        parts, "extract", {"input": source.identity(), "min_characters": min_characters}
    )
    convert = functools.partial(_to_json_lines, min_characters)
    rejected = RejectedDocuments(max_bad_articles, output.parent)
    result = convert_source(source, convert, completion_log, "part_{:06d}.jsonl", "extract", rejected, pool)
    if not result.files:
        shutil.rmtree(parts)
        raise no_prose(rejected)
    with replacing(output) as stream:
        for name in result.files:
            with open(parts / name, "rb") as lines:
                shutil.copyfileobj(lines, stream, COPY_BYTES)
    shutil.rmtree(parts)
    return result


def add_extract_options(parser: argparse.ArgumentParser, sentences_too: bool = False) -> None:
    """Add the options of reading and cleaning; ``sentences_too`` also accepts the sentences step's output as input."""
    add_source_options(parser, sentences_too)
    parser.add_argument(
        "--min-characters", type=int, default=DEFAULT_MIN_CHARACTERS, metavar="N",
        help="shorter documents are left out (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--max-bad-articles", type=natural, default=DEFAULT_MAX_REJECTED, metavar="N",
        help="articles that cannot be used are listed in set_aside.jsonl; more than N end the run"
        " (default %(default)s)",
    )  # fmt: skip
    add_pool_options(parser)


def _run(options: argparse.Namespace) -> None:
    make_parent(options.output)
    with standard_input_copied(options, parts_folder(options.output)):
        source = source_from_options(with_absolute_paths(options))
        with make_pool(options, options.output.parent, source.files) as pool:
            result = extract(source, options.output, pool, options.min_characters, options.max_bad_articles)
    bad = f", {result.rejected:,} rejected" if result.rejected else ""
    print(f"{options.output}: {result.counts['documents']:,} documents, {result.counts['words']:,} words{bad}")


def main(arguments: list[str] | None = None) -> int:
    """Run the step's command."""
    parser = make_parser("data_utils.text.extract", "Writes the clean prose of a dump or another input as JSON Lines.")
    add_extract_options(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="JSON Lines file to write")
    return run_main(parser, _run, arguments)


if __name__ == "__main__":
    sys.exit(main())
