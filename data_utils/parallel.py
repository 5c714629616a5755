"""Distributes work over processes of this machine, or over the machines of a Dask cluster.

The functions that run in workers must be pure or always write the same files, because the work of a worker that dies is
done again.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import hashlib
import itertools
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from data_utils.command_line import positive
from utilities.commands import RUN_AGAIN
from utilities.environment import usable_cores
from utilities.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

ITEMS_PER_WORKER = 2  # one in progress and one waiting
SMALL_BYTES = 3 << 20  # a smaller amount of work is done before workers have started
NEW_OBJECTS = 100_000  # between two garbage collections; with Python's default, 700, they take a sixth of the time
MAX_DEATHS = 3  # workers that may die before an item is given up
CONNECT_SECONDS = 20
START_METHOD = "forkserver"  # forking this process itself is unsafe, because it has threads
MARKER_PREFIX = ".seen-"  # files by which workers on other machines show that they see a folder


class Pool:
    """Runs functions in this process, in worker processes on this machine, or in the workers of a Dask cluster.

    Workers start when they are first needed and end with the ``with`` block, or with this process, however it ends.
    Results never depend on the number of workers.

    Args:
        workers: Number of processes on this machine; 1 runs everything in this process.
        scheduler: Address of a Dask scheduler, such as ``tcp://10.0.0.1:8786``, whose workers are used instead.
        folders: Output folders, which every worker of that scheduler must see under the same path.
        files: Input files, which they must see as well.

    Example:
        >>> with Pool(workers=1) as pool:
        ...     sorted(pool.map(abs, [-2, 1]))
        [1, 2]
    """

    def __init__(
        self, workers: int = 1, scheduler: str | None = None, folders: Sequence[Path] = (), files: Sequence[Path] = ()
    ):
        self._workers, self._scheduler = workers, scheduler
        self._folders, self._files = list(folders), list(files)
        self._client: Any = None
        self._executor: ProcessPoolExecutor | None = None
        self._lifeline: tuple[Connection, Connection] | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_workers()
        if self._client is not None:
            self._client.close()
            self._client = None

    def begin(self, modules: Sequence[str], size: int | None = None) -> None:
        """Load the modules of the functions that ``map`` will call, in the background and once for all workers.

        Args:
            modules: Names of modules.
            size: Total bytes of the items, as for ``map``.
        """
        if self._scheduler is None and not self._runs_here(size):
            _start_fork_server(modules)

    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item], size: int | None = None
    ) -> Iterator[Result]:
        """Yield the function's result for each item as soon as it is ready, in any order.

        Only a few items per worker are taken at a time, to keep a long input out of memory.

        Args:
            function: A module's function, or ``functools.partial`` of one.
            items: Picklable items; the iterable itself runs in this process.
            size: Total bytes of the items, if known; a small amount of work is done in this process.

        Raises:
            UserError: The function raised it, or workers were lost.
        """
        if self._scheduler is not None:
            return self._map_on_cluster(function, iter(items))
        if self._runs_here(size):
            return map(function, items)
        return self._map_on_processes(function, items)

    def _runs_here(self, size: int | None) -> bool:
        return self._workers <= 1 or (size is not None and size <= SMALL_BYTES)

    def _map_on_processes(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        items = iter(items)
        first = list(itertools.islice(items, 2))
        if len(first) < 2:
            yield from map(function, first)
            return
        # Each item, and how often a worker has died while working on it.
        queue: Iterator[tuple[Item, int]] = ((item, 0) for item in itertools.chain(first, items))
        running: dict[Future[Result], tuple[Item, int]] = {}
        try:
            while True:
                for item, deaths in itertools.islice(queue, ITEMS_PER_WORKER * self._workers - len(running)):
                    running[self._submit(function, item)] = item, deaths
                if not running:
                    return
                done = wait(running, return_when=FIRST_COMPLETED).done
                if any(isinstance(future.exception(), BrokenProcessPool) for future in done):
                    self._stop_workers()
                    queue = itertools.chain([_after_death(*entry) for entry in running.values()], queue)
                    running.clear()
                    continue
                for future in done:
                    del running[future]
                    yield future.result()
        finally:
            for future in running:
                future.cancel()

    def _submit(self, function: Callable[[Item], Result], item: Item) -> Future[Result]:
        try:
            return self._processes().submit(function, item)
        except BrokenProcessPool:  # a worker died while it was idle
            self._stop_workers()
            return self._processes().submit(function, item)

    def _processes(self) -> ProcessPoolExecutor:
        if self._executor is None:
            _start_fork_server([])
            context = multiprocessing.get_context(START_METHOD)
            self._lifeline = context.Pipe(duplex=False)
            self._executor = ProcessPoolExecutor(self._workers, context, _end_with, self._lifeline[:1])
        return self._executor

    def _stop_workers(self) -> None:
        executor, lifeline, self._executor, self._lifeline = self._executor, self._lifeline, None, None
        if lifeline is not None:
            for end in lifeline:
                end.close()
        if executor is not None:
            executor.shutdown(cancel_futures=True)

    def _map_on_cluster(self, function: Callable[[Item], Result], items: Iterator[Item]) -> Iterator[Result]:
        from distributed import KilledWorker, as_completed
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError

        client = self._connected()
        window = ITEMS_PER_WORKER * max(1, sum(client.nthreads().values()))
        running = as_completed([client.submit(function, item, pure=False) for item in itertools.islice(items, window)])
        try:
            for future in running:
                yield future.result()
                for item in itertools.islice(items, 1):
                    running.add(client.submit(function, item, pure=False))
        except KilledWorker as error:
            raise UserError(f"workers ended again and again (out of memory?); {RUN_AGAIN}") from error
        except (FutureCancelledError, CommClosedError, TimeoutError) as error:
            raise UserError(f"the connection to the Dask scheduler was lost ({error}); {RUN_AGAIN}") from error
        finally:
            running.clear()  # cancels what has not begun

    def _connected(self) -> Any:
        try:
            from distributed import Client
        except ImportError as error:
            fix = "pip install -r requirements-cluster.txt"
            raise UserError(f"--scheduler: needs the package distributed, which is not installed: {fix}") from error
        if self._client is None:
            address = self._scheduler
            try:
                self._client = Client(address, timeout=CONNECT_SECONDS)
                self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
            except (OSError, ValueError, TimeoutError, TypeError) as error:  # TypeError: tls:// without certificates
                reason = "no Dask scheduler answers" if self._client is None else "no worker is connected to it"
                raise UserError(
                    f"--scheduler {address}: {reason} ({error}); start `python -m dask scheduler` there and"
                    f" `python -m dask worker {address}` on each machine, in this project's folder"
                ) from error
            self._check_workers()
        return self._client

    def _check_workers(self) -> None:
        """Check at once, rather than fail after hours, that all workers run this version and see the files."""
        with contextlib.ExitStack() as stack:
            markers = [
                stack.enter_context(tempfile.NamedTemporaryFile(prefix=MARKER_PREFIX, dir=folder.absolute()))
                for folder in self._folders
            ]
            paths = [*(marker.name for marker in markers), *(str(path.absolute()) for path in self._files)]
            answers = self._client.run(_worker_facts, paths, on_error="return")
        for worker, answer in answers.items():
            name = f"--scheduler {self._scheduler}: worker {worker}"
            if isinstance(answer, Exception):
                raise UserError(
                    f"{name} cannot load this project ({answer}); start it with `python -m dask worker`, in the"
                    " project's folder, with its environment"
                )
            code, unseen = answer
            if code != code_fingerprint():
                raise UserError(f"{name} runs another version of this project; use the same one")
            if unseen:
                missing = Path(unseen[0])
                missing = missing.parent if missing.name.startswith(MARKER_PREFIX) else missing
                raise UserError(
                    f"{name} does not see {missing}; every machine must reach input and output under the same path"
                )


def _after_death(item: Item, deaths: int) -> tuple[Item, int]:
    """Count a worker's death for an item that must be repeated; it is not known which item caused it."""
    if deaths == MAX_DEATHS:
        raise UserError(
            f"worker processes ended again and again (out of memory?); use fewer --workers, and {RUN_AGAIN}"
        )
    return item, deaths + 1


def _start_fork_server(modules: Sequence[str]) -> None:
    """Start the process that workers are forked from; it ignores Ctrl-C, which a terminal sends to all processes."""
    from multiprocessing import forkserver

    multiprocessing.get_context(START_METHOD).set_forkserver_preload(list(modules))
    with _interrupts_ignored():
        forkserver.ensure_running()


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_with(lifeline: Connection) -> None:
    """Initialize a worker, which ends at once when the main process closes its end of the pipe or dies."""

    def watch() -> None:
        lifeline.poll(None)
        os._exit(1)

    gc.set_threshold(NEW_OBJECTS)
    threading.Thread(target=watch, daemon=True).start()


def _worker_facts(paths: list[str]) -> tuple[str, list[str]]:
    return code_fingerprint(), [path for path in paths if not os.path.exists(path)]


@functools.lru_cache(maxsize=1)  # a worker's code is that of its first job, even if the files change
def code_fingerprint() -> str:
    """Return a digest of this package's source; machines with different digests must not work together."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def add_pool_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that determine where work is done."""
    group = parser.add_argument_group("workers (the output does not depend on them)")
    group.add_argument(
        "--workers", type=positive, default=usable_cores(), metavar="N",
        help="processes on this machine (default %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="Dask scheduler of a cluster of machines, such as tcp://10.0.0.1:8786, to use instead of --workers; all"
        " machines must see input and output under the same paths; tls:// with certificates from Dask's own settings",
    )


def make_pool(options: argparse.Namespace, output: Path, inputs: Iterable[Path]) -> Pool:
    """Return the workers that the options of ``add_pool_options`` describe; ``output`` is created for a cluster.

    From now on this process, which may be the only worker, collects garbage as rarely as other workers.
    """
    gc.set_threshold(NEW_OBJECTS)
    if not options.scheduler:
        return Pool(options.workers)
    output.mkdir(parents=True, exist_ok=True)
    return Pool(options.workers, options.scheduler, [output], list(inputs))


def with_absolute_paths(options: argparse.Namespace) -> argparse.Namespace:
    """Make the paths among the options absolute if ``--scheduler`` sends them to other machines."""
    if options.scheduler:
        for name, value in vars(options).items():
            if isinstance(value, Path):
                setattr(options, name, value.absolute())
            elif isinstance(value, list) and value and isinstance(value[0], Path):
                setattr(options, name, [path.absolute() for path in value])
    return options
