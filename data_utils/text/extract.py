"""Step ``extract``: a dump, or any other input, as JSON Lines of clean prose.

Each line is ``{"title": …, "text": …}``, paragraphs separated by a newline. The whole command line
``python -m data_utils.text`` does this on the way to sentences and writes no such file; this step is
for a look at the text, or for other uses of it. A killed run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from data_utils.parallel import Pool
from data_utils.records.writer import temporary_beside, write_atomically
from data_utils.text.command_line import Progress, make_parser, natural, run_main
from data_utils.text.ledger import Ledger
from data_utils.text.running import Done, add_pool_options, on_every_machine, pool_of, run_units
from data_utils.text.set_aside import DEFAULT_LIMIT, SetAside, SetAsides, reason_of
from data_utils.text.sources import Loaded, Source, add_source_options, source_of
from data_utils.text.units import Unit
from utilities.errors import UserError

DEFAULT_MIN_CHARACTERS = 100
COPY_BYTES = 1 << 22


class Cleaned(NamedTuple):
    """A document's prose."""

    title: str
    paragraphs: list[str]


def clean_documents(source: Source, unit: Unit | Loaded, min_characters: int) -> Iterator[Cleaned | SetAside]:
    """The documents of a unit whose prose is long enough, and what had to be set aside."""
    for document in source.documents(unit):
        if isinstance(document, SetAside):
            yield document
            continue
        try:
            paragraphs = source.paragraphs(document)
        except Exception as error:  # no article may end the run, whatever is wrong with it
            yield SetAside(document.title, f"cannot be cleaned: {reason_of(error)}")
            continue
        if sum(map(len, paragraphs)) >= max(min_characters, 1):
            yield Cleaned(document.title, paragraphs)


class _Task(NamedTuple):
    """What a worker must know."""

    source: Source
    min_characters: int
    ledger: Ledger


def part_name(unit: int) -> str:
    """Of the JSON lines of a unit."""
    return f"part_{unit:06d}.jsonl"


def _extract_unit(task: _Task, unit: Unit | Loaded) -> Done:
    lines, words, bad = [], 0, []
    for cleaned in clean_documents(task.source, unit, task.min_characters):
        if isinstance(cleaned, SetAside):
            bad.append(cleaned)
            continue
        text = "\n".join(cleaned.paragraphs)
        words += len(text.split())
        lines.append(json.dumps({"title": cleaned.title, "text": text}, ensure_ascii=False) + "\n")
    write_atomically(task.ledger.files / part_name(unit.number), "".join(lines).encode())
    facts = {"documents": len(lines), "words": words, "set_aside": bad}
    return Done(unit.number, unit.size, task.ledger.finish(unit.number, [part_name(unit.number)], facts))


def extract(
    source: Source,
    output: Path,
    pool: Pool,
    min_characters: int = DEFAULT_MIN_CHARACTERS,
    max_bad_articles: int = DEFAULT_LIMIT,
) -> dict[str, int]:
    """Writes the clean documents of a source as JSON Lines, atomically.

    Returns:
        ``documents``, ``words`` and ``set_aside``: how many.

    Raises:
        UserError: the input is broken, holds no prose, or more bad articles than allowed.
    """
    parts = output.with_name(output.name + ".parts")
    parts.mkdir(parents=True, exist_ok=True)
    ledger = Ledger.begin(parts, "extract", {"input": source.identity(), "min_characters": min_characters})
    totals = {"documents": 0, "words": 0}
    set_asides = SetAsides(max_bad_articles, output.parent)
    units: list[int] = []

    def on_done(unit: int, facts: dict[str, Any]) -> str:
        units.append(unit)
        set_asides.add(unit, facts["set_aside"])
        for name in totals:
            totals[name] += facts[name]
        return f"{totals['documents']:,} articles, {totals['words']:,} words{set_asides.note()}"

    function = functools.partial(_extract_unit, _Task(source.for_workers(), min_characters, ledger))
    with Progress(source.total_bytes, "extract") as progress:
        run_units(pool, ledger, function, source.units(), source.total_bytes, progress, on_done)
    set_asides.write()
    if not totals["documents"]:
        shutil.rmtree(parts)
        raise no_prose(set_asides)
    _join([parts / part_name(unit) for unit in sorted(units)], output)
    shutil.rmtree(parts)
    return {**totals, "set_aside": set_asides.count}


def no_prose(set_asides: SetAsides) -> UserError:
    """The error where nothing remains of the input."""
    text = "the input holds no prose: no document is long enough (see --min-characters)"
    if set_asides.count:
        text += f", and {set_asides.count:,} could not be used, the first: {set_asides.first()}"
    return UserError(text)


def _join(parts: list[Path], output: Path) -> None:
    temporary = temporary_beside(output)
    with open(temporary, "wb") as stream:
        for part in parts:
            with open(part, "rb") as lines:
                shutil.copyfileobj(lines, stream, COPY_BYTES)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, output)


def add_extract_options(parser: argparse.ArgumentParser, sentences_too: bool = False) -> None:
    """Options of reading and cleaning; ``sentences_too`` offers the sentences step's output too."""
    add_source_options(parser, sentences_too)
    parser.add_argument(
        "--min-characters",
        type=int,
        default=DEFAULT_MIN_CHARACTERS,
        metavar="N",
        help="shorter documents are left out (default %(default)s)",
    )
    parser.add_argument(
        "--max-bad-articles",
        type=natural,
        default=DEFAULT_LIMIT,
        metavar="N",
        help="articles that cannot be used are set aside in set_aside.jsonl; more than N end the run"
        " (default %(default)s)",
    )
    add_pool_options(parser)


def _action(options: argparse.Namespace) -> None:
    source = source_of(on_every_machine(options))
    with pool_of(options, options.output.parent, source.files) as pool:
        found = extract(source, options.output, pool, options.min_characters, options.max_bad_articles)
    bad = f", {found['set_aside']:,} set aside" if found["set_aside"] else ""
    print(f"{options.output}: {found['documents']:,} documents, {found['words']:,} words{bad}")


def main(arguments: list[str] | None = None) -> int:
    """Command line of the step."""
    parser = make_parser("data_utils.text.extract", "Clean prose of a dump or another input, as JSON Lines.")
    add_extract_options(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="JSON Lines file to write")
    return run_main(parser, _action, arguments)


if __name__ == "__main__":
    sys.exit(main())
