"""Opens the workers that make shards: this process, processes of this machine, or what an option names elsewhere."""

from __future__ import annotations

import argparse
import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Callable, ContextManager, Iterator, Optional

from data_utils.command_line import positive
from data_utils.dask_workers import add_scheduler_option  # room: dask
from data_utils.shards import ALONE, Workers
from utilities.environment import usable_cores
from utilities.files import only_command_in

NEW_OBJECTS = 100_000  # between two garbage collections; with Python's default, 700, they take a sixth of the time

OpenElsewhere = Callable[[Optional[Path]], ContextManager[Workers]]  # the workers of an output folder


@contextlib.contextmanager
def open_workers(
    count: int, folder: Optional[Path] = None, elsewhere: Optional[OpenElsewhere] = None
) -> Iterator[Workers]:
    """Yield workers, which end with the block, or with this process, however it ends; lock their output folder.

    One worker on this machine is this process.
    """
    gc.set_threshold(NEW_OBJECTS)  # in this process, which may be the only worker, as in the others
    locked = only_command_in(folder) if folder is not None else contextlib.nullcontext()
    with locked, _processes(count) if elsewhere is None else elsewhere(folder) as workers:
        yield workers


@contextlib.contextmanager
def _processes(count: int) -> Iterator[Workers]:
    if count <= 1:
        yield ALONE
    else:
        context = multiprocessing.get_context("forkserver")  # forking this process is unsafe, because it has threads
        _start_fork_server(context)
        ends = context.Pipe(duplex=False)
        executor = ProcessPoolExecutor(count, context, _end_with, ends[:1])
        try:
            yield Workers(executor, count)
        finally:
            for end in ends:
                end.close()
            executor.shutdown(cancel_futures=True)


def _end_with(lifeline: Connection) -> None:
    """Initialize a worker, which ends at once when the main process closes its end of the pipe or dies."""

    def watch() -> None:
        lifeline.poll(None)
        os._exit(1)

    gc.set_threshold(NEW_OBJECTS)
    threading.Thread(target=watch, daemon=True).start()


def _start_fork_server(context: ForkServerContext) -> None:
    """Start the process that workers are forked from; it ignores Ctrl-C, which a terminal sends to all processes."""
    from multiprocessing import forkserver

    command = sys.modules["__main__"].__spec__
    # The modules of a package are loaded once for all workers; Python warns if a single module has been loaded before.
    if command is not None and command.name.endswith(".__main__"):
        context.set_forkserver_preload([command.name])
    if threading.current_thread() is not threading.main_thread():  # which alone may change how signals are handled
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)


def add_worker_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("workers (the output does not depend on them)")
    group.add_argument(
        "--workers", type=positive, default=usable_cores(), metavar="N",
        help="processes on this machine (default %(default)s)",
    )  # fmt: skip
    parser.set_defaults(elsewhere=None)
    add_scheduler_option(group)  # room: dask


def workers_from_options(options: argparse.Namespace) -> contextlib.AbstractContextManager[Workers]:
    """Return the workers that the options of ``add_worker_options`` describe, for the folder ``options.output``."""
    return open_workers(options.workers, options.output, options.elsewhere)


def with_absolute_paths(options: argparse.Namespace) -> argparse.Namespace:
    """Make the paths among the options absolute if they are sent to other machines."""
    if options.elsewhere:
        for name, value in vars(options).items():
            if isinstance(value, Path):
                setattr(options, name, value.absolute())
    return options
