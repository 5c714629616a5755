# PYTHON_ARGCOMPLETE_OK
"""Searches for better settings: ``python -m tasks.search --space FILE --trials N --output FOLDER -- run_….py …``."""

from __future__ import annotations

import os
import sys

if not __package__:  # started by its path, from any folder
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

import argparse
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from model.tasks import TASKS
from utilities.commands import make_parser, run_main
from utilities.errors import UserError


def search(options: argparse.Namespace) -> None:
    """Search, and print the results."""
    try:
        from tasks.search.study import run_search
    except ImportError as error:
        raise UserError(f"a search needs Optuna 4.9 or later ({error}); run: pip install --upgrade optuna") from error
    if options.trials < 1:
        raise UserError(f"--trials {options.trials}: give a number of trials, 1 or more")
    print("\n".join(run_search(options, *training_command(options.command))))


def training_command(words: Sequence[str]) -> Tuple[str, List[str]]:
    """Return the task and the training command, its script and flags.

    Raises:
        UserError: there is no training command.
    """
    command = list(words[1:] if words[:1] == ["--"] else words)
    tasks = {facts.program: name for name, facts in TASKS.items()}
    task = tasks.get(Path(command[0]).name) if command else None
    if task is None:
        raise UserError(f"give the training command after --: one of {', '.join(tasks)}, and its flags")
    return task, command


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command and return its exit status."""
    parser = make_parser(
        "tasks.search",
        "Search for settings that train better models. Each trial is a run of a training command with other values;"
        " the same command again resumes the search.",
    )
    parser.add_argument(
        "--space",
        type=Path,
        required=True,
        metavar="FILE",
        help='JSON: for each field a list of values, or a range such as {"low": 1e-5, "high": 1e-4, "log": true}',
    )
    parser.add_argument("--trials", type=int, required=True, metavar="N", help="trials to complete or prune, in total")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="folder of runs and results")
    parser.add_argument("--metric", metavar="NAME", help="score to search for [evaluation.metric, or the task's]")
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="database of the study, which machines with folders of the same name share [SQLite in FOLDER]",
    )
    parser.add_argument("--no-pruning", action="store_true", help="train every trial to its end")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- PROGRAM …", help="training command to vary")
    return run_main(parser, search, arguments)


if __name__ == "__main__":
    sys.exit(main())
