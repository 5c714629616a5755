"""Searches for better settings: ``python -m tasks.search --space FILE --trials N --output FOLDER -- run_….py …``."""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import sys
from pathlib import Path
from typing import IO, List, Optional, Sequence, Tuple

from model.tasks import TASKS
from settings.loading import load_config
from tasks import task_class
from tasks.own_data import read_classes
from utilities.commands import make_parser, run_main
from utilities.errors import UserError

STUDY = "study.db"
MOST_FAILURES = 3  # failed trials in a row that end the search


def run_search(options: argparse.Namespace) -> None:
    """Run trials until there are enough, and print and write the results.

    Raises:
        UserError: the command, the space or the storage is wrong, or several trials in a row failed.
        KeyboardInterrupt: the search was stopped; the same command resumes it.
    """
    if importlib.util.find_spec("optuna") is None:
        raise UserError("a search needs Optuna, which is not installed; run: pip install optuna")
    import optuna

    from tasks.search.results import write_results
    from tasks.search.space import check_space, flag, read_space
    from tasks.search.trials import (
        Search,
        check_same_search,
        next_trial,
        open_storage,
        open_study,
        run_trial,
        storage_errors,
    )

    if options.trials < 1:
        raise UserError(f"--trials {options.trials}: give a number of trials, 1 or more")
    task, command = training_command(options.command)
    config = load_config(task, command[1:], read_classes).config
    if config.seeds is not None:
        raise UserError("seeds: a trial is one run; remove seeds, and train the best config with them afterwards")
    space = read_space(options.space)
    check_space(space, str(options.space), task, command[1:])
    if options.metric is not None and config.evaluation.every is not None:
        command.append(flag("evaluation.metric", options.metric))
    scores = task_class(task).metrics(config)
    metric = options.metric or config.evaluation.metric or scores[0]
    if metric not in scores:
        raise UserError(f"--metric {metric}: the task has no such score; name one of {', '.join(scores)}")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    failures = 0
    with locked(options.output) as lock, storage_errors():
        storage = open_storage(options.storage or f"sqlite:///{options.output / STUDY}")
        study = open_study(storage, options.output.resolve().name, metric, not options.no_pruning)
        search = Search(command, config, space, metric, options.output, study, storage, lock.fileno())
        check_same_search(search)
        trial = next_trial(search, options.trials)
        while trial is not None:
            error = run_trial(search, trial)
            write_results(search, task)
            failures = failures + 1 if error else 0
            if failures == MOST_FAILURES:
                raise UserError(f"{failures} trials in a row failed, the last one: {error}")
            trial = next_trial(search, options.trials)
        print("\n".join(write_results(search, task)))


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


def locked(folder: Path) -> IO[str]:
    """Create a folder, and lock it until the returned file is closed, here and in the trial that inherits it.

    Raises:
        UserError: another search has locked it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = open(folder / ".lock", "a", encoding="utf-8")  # noqa: SIM115 (closed by the caller)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UserError(
            f"--output: another search writes to {folder}, or the trial of one that was killed still saves its state;"
            " wait for it to end, or name another folder"
        ) from None
    return file


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
    return run_main(parser, run_search, arguments)


if __name__ == "__main__":
    sys.exit(main())
