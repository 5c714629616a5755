"""Work spread over processes or machines by Dask; in this process where that would not pay.

The functions that are run must be pure or leave the same files whenever they run, because Dask runs a task again when
its worker dies.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import multiprocessing
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from utilities.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 2  # tasks given out for each thread: one runs, the other waits where it will run
SMALL_BYTES = 3 << 20  # what one process is done with before a cluster has started
CONNECT_SECONDS = 20
# Of glibc's allocator in workers, bytes. Dask lets it give freed memory back at once; to get it again, page by page,
# for each array of each unit takes a fifth of the workers' time.
MALLOC = {"MALLOC_TRIM_THRESHOLD_": 256 << 20, "MALLOC_MMAP_THRESHOLD_": 32 << 20}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), 1)
# What Dask does for its pictures beside the work: looks at the work a hundred times a second, at its loops fifty times.
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "5s",
}
SERVER = "forkserver"
_NO_MORE: Any = object()
MARK = ".seen-"  # names of files by which workers show that they see a folder


def available_cores() -> int:
    """Cores that this process may use (a container's share, not the machine's number)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Pool:
    """Workers: this process, a Dask cluster on this machine, or one that runs already.

    A cluster on this machine is started in the background, by ``begin`` or when it is first needed; until it is there
    this process does the work. It is ended with the ``with`` block. What comes out never depends on the number of
    workers.

    Args:
        workers: processes on this machine; 1 runs everything here.
        scheduler: address of a Dask scheduler, such as ``tcp://10.0.0.1:8786``; then its workers do the work.
        folders: of the output; every worker of that scheduler must see them under the same path.
        files: of the input; the same.

    Example:
        >>> with Pool(workers=1) as pool:
        ...     sorted(pool.map(abs, [-2, 1]))
        [1, 2]
    """

    def __init__(
        self,
        workers: int = 1,
        scheduler: str | None = None,
        folders: Sequence[Path] = (),
        files: Sequence[Path] = (),
    ):
        self._workers, self._scheduler = workers, scheduler
        self._folders, self._files = list(folders), list(files)
        self._client: Any = None
        self._cluster: Any = None
        self._starting: Future[None] | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.exception()  # waits: what is half started cannot be ended
        client, cluster, self._client, self._cluster = self._client, self._cluster, None, None
        if client is not None:
            client.close()
        if cluster is not None:
            cluster.close()

    def begin(self, modules: Sequence[str] = (), size: int | None = None, wait: bool = False) -> None:
        """Has the cluster on this machine start meanwhile, where there will be one: it takes seconds.

        Args:
            modules: that the functions come from; loaded once, for all workers.
            size: bytes of all items, as for ``map``.
            wait: whether to return when the workers are there.
        """
        if self._scheduler is None and not self._works_here(size) and self._starting is None:
            _start_server(["distributed", *modules])
            executor = ThreadPoolExecutor(1, "cluster")
            self._starting = executor.submit(self._start_local)
            executor.shutdown(wait=False)
        if wait and self._starting is not None:
            self._starting.result()

    def _works_here(self, size: int | None) -> bool:
        return self._workers <= 1 or (size is not None and size <= SMALL_BYTES)

    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item], size: int | None = None
    ) -> Iterator[Result]:
        """The function of each item, in whatever order they are done.

        A few items for each worker are under way at a time, so a long input is streamed and not collected.

        Args:
            function: picklable (a module's function, or ``functools.partial`` of one).
            items: picklable; taken one by one in this process.
            size: bytes of all items, where known: little is done here, without a cluster.

        Raises:
            UserError: one of the function's own, or the cluster was lost.
        """
        if self._scheduler is None and self._works_here(size):
            return map(function, items)
        return self._on_cluster(function, iter(items))

    def _on_cluster(self, function: Callable[[Item], Result], items: Iterator[Item]) -> Iterator[Result]:
        first = list(itertools.islice(items, 2))
        if len(first) < 2 and self._scheduler is None:
            yield from map(function, first)
            return
        items = itertools.chain(first, items)
        if self._scheduler is None:
            self.begin([_module_of(function)])
            assert self._starting is not None, "it was begun"
            while not self._starting.done():  # nobody is idle meanwhile
                item = next(items, _NO_MORE)
                if item is _NO_MORE:
                    return
                yield function(item)
        from distributed import KilledWorker, as_completed
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError

        client = self._connected()
        window = AHEAD * max(1, sum(client.nthreads().values()))
        running = as_completed([client.submit(function, item, pure=False) for item in itertools.islice(items, window)])
        try:
            for future in running:
                yield future.result()
                for item in itertools.islice(items, 1):
                    running.add(client.submit(function, item, pure=False))
        except KilledWorker as error:
            raise UserError(
                "worker processes ended again and again at the same piece of work (out of memory?); use fewer"
                " --workers, and run the command again: it goes on where it stopped"
            ) from error
        except (FutureCancelledError, CommClosedError, TimeoutError) as error:
            raise UserError(
                f"the Dask scheduler was lost ({error}); run the command again, it goes on where it stopped"
            ) from error
        finally:
            running.clear()  # lets go of what has not begun

    def _connected(self) -> Any:
        if self._starting is not None:
            self._starting.result()
        elif self._client is None:
            assert self._scheduler is not None, "a cluster on this machine was begun"
            self._connect(self._scheduler)
        return self._client

    def _start_local(self) -> None:
        import logging

        import dask
        from distributed import Client, LocalCluster

        settings: dict[str, Any] = {f"distributed.nanny.pre-spawn-environ.{name}": v for name, v in MALLOC.items()}
        settings |= QUIET
        if _has_server():
            settings["distributed.worker.multiprocessing-method"] = SERVER
        with dask.config.set(settings), _environment({}):
            self._cluster = LocalCluster(
                n_workers=self._workers,
                threads_per_worker=1,  # the work is Python's: threads would wait for one another
                processes=True,
                dashboard_address=":0",  # any free port: several preparations may run side by side
                silence_logs=logging.CRITICAL,
            )
        self._client = Client(self._cluster)

    def _connect(self, address: str) -> None:
        from distributed import Client

        try:
            self._client = Client(address, timeout=CONNECT_SECONDS)
            self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except (OSError, ValueError, TimeoutError) as error:
            reason = "no Dask scheduler answers" if self._client is None else "no worker is connected to it"
            raise UserError(
                f"--scheduler {address}: {reason} ({error}); start `dask scheduler` there and `dask worker {address}`"
                " on each machine, in this project's folder"
            ) from error
        self._check_workers(address)

    def _check_workers(self, address: str) -> None:
        """All machines must run this version and share the folders: found here, not after hours."""
        marks = [folder / f"{MARK}{uuid.uuid4().hex}" for folder in self._folders]
        paths = [str(path.absolute()) for path in (*marks, *self._files)]
        try:
            for mark in marks:
                mark.touch()
            answers = self._client.run(_worker_facts, paths, on_error="return")
        finally:
            for mark in marks:
                mark.unlink(missing_ok=True)
        for worker, answer in answers.items():
            if isinstance(answer, Exception):
                raise UserError(
                    f"--scheduler {address}: worker {worker} cannot load this project ({answer}); start it in the"
                    " project's folder, with its environment"
                )
            code, unseen = answer
            if code != code_fingerprint():
                raise UserError(
                    f"--scheduler {address}: worker {worker} runs another version of this project; use the same one"
                )
            if unseen:
                missing = Path(unseen[0])
                missing = missing.parent if missing.name.startswith(MARK) else missing
                raise UserError(
                    f"--scheduler {address}: worker {worker} does not see {missing};"
                    " every machine must reach input and output under the same path"
                )


def _module_of(function: Callable[..., Any]) -> str:
    return getattr(function, "func", function).__module__  # behind functools.partial


def _has_server() -> bool:
    return SERVER in multiprocessing.get_all_start_methods()


def _start_server(modules: Sequence[str]) -> None:
    """Starts the process that workers are forked from, where the system has such: each needs what it has loaded."""
    if not _has_server():
        return
    from multiprocessing import forkserver

    multiprocessing.get_context(SERVER).set_forkserver_preload(list(modules))
    with _interrupts_are_ours(), _environment({**MALLOC, **ONE_THREAD}):
        forkserver.ensure_running()


@contextlib.contextmanager
def _environment(values: Mapping[str, object]) -> Iterator[None]:
    """Environment of processes started here; what the user has set stays, and what is new goes again, Dask's too."""
    before = set(os.environ)
    os.environ.update({name: str(value) for name, value in values.items() if name not in before})
    try:
        yield
    finally:
        for name in set(os.environ) - before:
            del os.environ[name]


@contextlib.contextmanager
def _interrupts_are_ours() -> Iterator[None]:
    """Processes started here ignore Ctrl-C, which a terminal sends to all: this one ends them, without their words."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _worker_facts(paths: list[str]) -> tuple[str, list[str]]:
    return code_fingerprint(), [path for path in paths if not os.path.exists(path)]


def code_fingerprint() -> str:
    """Digest of this package's source: machines that differ in it must not work together."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
