# PYTHON_ARGCOMPLETE_OK
"""The demo: two minutes of ``run_from_text.py`` with the prose that every Python carries.

``python -m tasks.demo`` writes the text, and then runs the command that a user would type. A demo that was stopped
goes on where it stopped; one that has ended shows its result again.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path
from typing import Optional, Sequence

from data_utils.command_line import positive
from data_utils.demo_corpus import write_demo_corpus
from tasks.from_text.command import PROGRAM
from tasks.from_text.command import main as run_from_text
from utilities.commands import make_parser, run_main
from utilities.files import PROJECT

WORDS = 400_000
HOURS = 0.034  # two minutes
NAME = "demo"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; return 0, 2 if a step failed, 130 after Ctrl-C."""
    parser = make_parser("tasks.demo", __doc__.splitlines()[0])
    parser.add_argument("--words", type=positive, metavar="N", help=f"of the text (default: {WORDS:,})")
    parser.add_argument(
        "--hours", type=float, default=HOURS, metavar="X", help=f"after the text is written (default: {HOURS})"
    )
    parser.add_argument("--output-dir", type=Path, default=PROJECT / "runs", metavar="DIR", help="(default: runs)")
    return run_main(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    """Write the text, unless it is there, and make a model from it; return the exit status."""
    folder: Path = options.output_dir
    text = folder / f"{NAME}.txt"
    if not text.exists():
        documents, written = write_demo_corpus(text, options.words or WORDS)
        print(f"{text}: {documents:,} documents, {written:,} words, from the documentation of Python and its packages")
    elif options.words is not None:
        print(f"{text}: is there already, so that --words has no effect; give another --output-dir")
    command = ["--text", str(text), "--hours", str(options.hours), "--name", NAME, "--output-dir", str(folder)]
    print(f"$ {shlex.join(['python', PROGRAM, *command])}\n", flush=True)
    return run_from_text(command, time.monotonic())


if __name__ == "__main__":
    sys.exit(main())
