"""The common main function of the training commands: parse and validate, then plan or run; user errors are one line."""

from __future__ import annotations

import argparse
import functools
import json
import logging
import sys
import time
import traceback
from pathlib import Path
from typing import Callable, List, Optional, Sequence

from execution.software.cluster.lifeline import watch_lifeline  # room: cluster
from model.tasks import PRETRAINING, TASKS
from planning.overview import duration_lines, host_memory_lines, plan_lines, plan_warnings
from settings.architecture import check_known_sizes
from settings.flags import EVERYTHING, parse_flags
from settings.loading import LoadedConfig, resolve
from settings.metadata import is_begun
from settings.problems import ConfigError
from settings.schema import TrainingConfig
from tasks import check_metric, run_config, started_processes
from tasks.user_data import read_classes
from utilities.commands import (
    EXIT_UNREAD,
    check_arguments,
    log_to_stderr,
    output_is_unread,
    print_any_character,
    start_command,
)
from utilities.errors import EXIT_USER_ERROR, Stopped, UserError
from utilities.secrets import mask, shown_line

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as in shells

Run = Callable[[LoadedConfig], object]


def main(task: str, argv: Optional[Sequence[str]] = None, run: Optional[Run] = None) -> int:
    """Run one command and return its exit status.

    Args:
        task: a name in ``model.tasks.TASKS``.
        argv: arguments without the program's name; None: those of the process.
        run: runs the config; None: :func:`tasks.run_config`.

    Returns:
        0 for success, 2 after an error that the user can fix, and 128 + the signal's number for a run that a signal
        stopped, or whose output nobody reads any more: a command that follows with ``&&`` does not start.
    """
    run = run or functools.partial(run_config, started=time.perf_counter())
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    watch_lifeline()  # room: cluster
    print_any_character()
    try:
        check_arguments(arguments)
        return _main(task, run, arguments)
    except UserError as error:
        if debug:
            print(mask(traceback.format_exc()), end="", file=sys.stderr)
        for message in error.problems if debug and isinstance(error, ConfigError) else [str(error)]:
            print(f"error: {shown_line(message)}", file=sys.stderr)
        return EXIT_USER_ERROR
    except Stopped as stop:
        if stop.is_reported and stop.run:
            print(f"{stop}; to resume:\n  {mask(resume_command(TASKS[task].program, arguments, stop.run))}")
        elif stop.is_reported:
            print(f"{stop} before there was anything to resume", file=sys.stderr)
        return stop.status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        if output_is_unread():
            return EXIT_UNREAD
        raise


def _main(task: str, run: Run, arguments: List[str]) -> int:
    try:
        options, flag_values = parse_flags(task, arguments)
    except SystemExit as stop:  # after --help
        return int(stop.code or 0)
    if options.schema:
        print(json.dumps(TrainingConfig.model_json_schema(), indent=2))
        return 0
    loaded = resolve(task, options.config or (), flag_values, complete=read_classes)
    check_metric(loaded.config, task)
    processes, number = started_processes()
    if options.plan:
        if not is_begun(loaded.config.output_dir, loaded.config.name):
            check_known_sizes(loaded.config, task)
        if task != PRETRAINING:  # numpy and a tokenizer, for which other plans do not wait
            from tasks.fitted_rows import fitted
            from tasks.planned_files import counted

            loaded = counted(fitted(loaded, fetch=False))
        if loaded.config.resume:
            from training.resume import config_to_resume, named_run

            config_to_resume(loaded, named_run(loaded))
        print("\n".join(plan_lines(loaded, processes, options.plan == EVERYTHING)))
        if options.throughput is not None:
            if not options.throughput > 0:
                raise UserError(f"--throughput {options.throughput}: give samples per second, more than 0")
            for line in duration_lines(loaded, options.throughput):
                print(line)
        warnings = [*plan_warnings(loaded), *host_memory_lines(loaded)]
        for line in ["", *warnings] if warnings else []:
            print(line)
        sys.stdout.flush()
        return 0
    log_to_stderr(loaded.config.logging)
    if number > 0:  # of several processes, the chief says what is done
        root = logging.getLogger()
        root.setLevel(max(root.level, logging.WARNING))
    run(loaded)
    return 0


def resume_command(program: str, arguments: Sequence[str], name: str) -> str:
    """Return the shell command that resumes a run, given the arguments with which it was started."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--name")
    parser.add_argument("--resume", nargs="?")
    _, others = parser.parse_known_args(arguments)
    return start_command(Path(program).stem, [*others, "--name", name, "--resume"])
