"""``python -m utilities.compare RUN RUN…``: prints tables of runs side by side, and writes a page with their curves."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Iterator, List, Optional, Sequence

from utilities.compare.page import write_page
from utilities.compare.rows import Table, labels_of, read_runs, tables_of
from utilities.errors import UserError
from utilities.report.run_folder import RunData
from utilities.secrets import mask, shown_line

LONGEST_CELL = 48  # characters


def lines(runs: Sequence[RunData]) -> Iterator[str]:
    """The tables as text."""
    labels = labels_of(runs)
    for table in tables_of(runs):
        yield ""
        yield table.title
        yield from _aligned(table, labels)


def _aligned(table: Table, labels: Sequence[str]) -> Iterator[str]:
    grid = [["", *labels]] + [[row.name, *("-" if cell is None else cell for cell in row.cells)] for row in table.rows]
    cut = [[_cut(mask(cell)) for cell in row] for row in grid]
    widths = [max(len(row[column]) for row in cut) for column in range(len(cut[0]))]
    for name, *cells in cut:
        yield f"  {name.ljust(widths[0])}" + "".join(f"  {c.rjust(w)}" for c, w in zip(cells, widths[1:]))


def _cut(cell: str) -> str:
    cell = " ".join(cell.split())
    return cell if len(cell) <= LONGEST_CELL else cell[: LONGEST_CELL - 1] + "…"


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m utilities.compare",
        description="Runs side by side: what differs in their configs, losses after the same numbers of samples, "
        "throughput, final values and scores.",
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run, finished or under way")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write an HTML page with the curves as well")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    options = parser.parse_args(arguments)
    try:
        if len(options.runs) < 2:
            raise UserError("one run is nothing to compare; name two or more")
        runs = read_runs(options.runs)
        print("\n".join(lines(runs)).lstrip("\n"))
        if options.output is not None:
            print(f"\npage: {write_page(runs, options.output)}")
    except UserError as error:
        if options.debug:
            raise
        print(f"error: {shown_line(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the output, such as head, has gone
        sys.stderr.close()
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
