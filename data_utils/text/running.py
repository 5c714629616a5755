"""Runs the units of a step that are not done yet, and the options that say where."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from data_utils.parallel import Pool, available_cores
from data_utils.text.command_line import Progress, positive
from data_utils.text.ledger import Ledger


class Work(Protocol):
    """A work unit."""

    @property
    def number(self) -> int:
        """From 0, without gaps."""

    @property
    def size(self) -> int:
        """What progress is measured in."""


class Done(NamedTuple):
    """What a worker reports of a unit: its number and size, and the facts of its done-record."""

    number: int
    size: int
    facts: dict[str, Any]


def run_units(
    pool: Pool,
    ledger: Ledger,
    function: Callable[[Any], Done],
    units: Iterable[Work],
    size: int,
    progress: Progress,
    on_done: Callable[[int, dict[str, Any]], str],
) -> None:
    """Works on the units that the ledger does not have.

    Args:
        pool: where.
        ledger: of the step; ``function`` enters into it.
        function: works on one unit, in a worker.
        units: all of them, in order.
        size: bytes of text that they work on.
        progress: told of each.
        on_done: called in this process for each unit, also those done before, in no fixed order; what it returns is
            shown behind the progress.
    """

    def to_do() -> Iterable[Work]:
        for unit in units:
            facts = ledger.done(unit.number)
            if facts is None:
                yield unit
            else:
                on_done(unit.number, facts)
                progress.skip(unit.size)

    for done in pool.map(function, to_do(), size):
        progress.advance(done.size, on_done(done.number, done.facts))


def add_pool_options(parser: argparse.ArgumentParser) -> None:
    """Where the work is done; never changes the output."""
    group = parser.add_argument_group("workers (the output does not depend on them)")
    group.add_argument(
        "--workers",
        type=positive,
        default=available_cores(),
        metavar="N",
        help="processes on this machine (default %(default)s)",
    )
    group.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="Dask scheduler of a cluster of machines, such as tcp://10.0.0.1:8786, to work instead of --workers; all"
        " machines must see input and output under the same paths",
    )


def pool_of(options: argparse.Namespace, output: Path, inputs: Iterable[Path]) -> Pool:
    """The workers that the options of ``add_pool_options`` describe.

    Args:
        output: folder, made if absent.
        inputs: files that are read.
    """
    if not options.scheduler:
        return Pool(options.workers)
    output.mkdir(parents=True, exist_ok=True)
    return Pool(options.workers, options.scheduler, [output], list(inputs))


def on_every_machine(options: argparse.Namespace) -> argparse.Namespace:
    """The options with absolute paths where ``--scheduler`` sends them to other machines."""
    if options.scheduler:
        for name, value in vars(options).items():
            if isinstance(value, Path):
                setattr(options, name, value.absolute())
            elif isinstance(value, list) and value and isinstance(value[0], Path):
                setattr(options, name, [path.absolute() for path in value])
    return options
