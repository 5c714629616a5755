"""``python -m utilities.report RUN_FOLDER`` writes the report of a run and prints its path."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import List, Optional

from utilities.errors import UserError
from utilities.report.page import write_report
from utilities.secrets import shown_line


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m utilities.report",
        description="Write report.html into a run folder, from the files in it.",
    )
    parser.add_argument("run_folder", type=Path, help="folder of a training run, finished or not")
    parser.add_argument(
        "--live",
        action="store_true",
        help="the run is not finished: browsers reload the page every minute; works at the lowest priority",
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    options = parser.parse_args(arguments)
    if options.live:
        os.nice(19)
    try:
        print(write_report(options.run_folder, options.live))
    except (UserError, OSError) as error:
        if options.debug:
            raise
        print(f"error: {shown_line(str(error))}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
