# PYTHON_ARGCOMPLETE_OK
"""``python -m reports RUN_FOLDER`` writes the report of a run and prints its path."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import List, Optional

from reports.page import write_report
from utilities.commands import make_parser, run_main


def main(arguments: Optional[List[str]] = None) -> int:
    parser = make_parser("reports", "Write report.html into a run folder, from the files in it.")
    parser.add_argument("run_folder", type=Path, help="folder of a training run, finished or not")
    parser.add_argument(
        "--live",
        action="store_true",
        help="the run is not finished: browsers reload the page every minute; works at the lowest priority",
    )
    return run_main(parser, _report, arguments)


def _report(options: argparse.Namespace) -> None:
    if options.live:
        os.nice(19)
    print(write_report(options.run_folder, options.live))


if __name__ == "__main__":
    sys.exit(main())
