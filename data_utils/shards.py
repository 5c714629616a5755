"""Makes the shards of a data set in processes of this machine, or on the machines of a Dask cluster.

A shard is the unit of work and of resume. A function makes its files from its content and returns facts about them; the
facts are written last, into the working folder. A shard is done if its facts are there, and its files with the sizes
that the facts say. A killed command, run again, makes the other shards. The number of workers never changes the bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import hashlib
import json
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from tqdm import tqdm

from data_utils.command_line import positive
from data_utils.records.manifest import WORK_FOLDER
from utilities.commands import RUN_AGAIN
from utilities.environment import usable_cores
from utilities.errors import UserError
from utilities.files import only_command_in, write_atomically

logger = logging.getLogger(__name__)

SHARDS_PER_WORKER = 2  # one in progress and one waiting
NEW_OBJECTS = 100_000  # between two garbage collections; with Python's default, 700, they take a sixth of the time
CONNECT_SECONDS = 20
WAIT_SECONDS = 15.0  # for a shard, until it is asked whether there are workers
INSTALL_DASK = "pip install -r requirements-cluster.txt"


class Shard(NamedTuple):
    """A part of the input that becomes files of its own. Picklable."""

    number: int  # from 0
    content: Any
    size: int  # what the progress counts


class Step(NamedTuple):
    """A step of a preparation, which writes its files into a folder, with the facts about its shards. Picklable."""

    folder: Path
    name: str

    def finish(self, number: int, names: Sequence[str], facts: Dict[str, Any]) -> Dict[str, Any]:
        """Write the facts about a shard whose files, named relative to the folder, are written; return the facts."""
        try:
            sizes = {name: (self.folder / name).stat().st_size for name in names}
            self._path(number).parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"sizes": sizes, "facts": facts}, ensure_ascii=False)
            write_atomically(self._path(number), text)
        except FileNotFoundError as error:
            raise UserError(
                f"{self.folder}: another command works in this folder; let it end, then run this one again"
            ) from error
        return json.loads(text)["facts"]

    def done(self, number: int) -> Optional[Dict[str, Any]]:
        """Return the facts about a shard that an earlier run has made; None for one that must be made."""
        try:
            known = json.loads(self._path(number).read_text(encoding="utf-8"))
            if all((self.folder / name).stat().st_size == size for name, size in known["sizes"].items()):
                return known["facts"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        return None

    def _path(self, number: int) -> Path:
        return self.folder / WORK_FOLDER / self.name / f"{number:06d}.json"


# Makes the files of a shard, each under a temporary name that is changed when it is complete. Returns their names,
# relative to the step's folder, and facts that JSON can express.
MakeShard = Callable[[Shard], Tuple[List[str], Dict[str, Any]]]


class Workers(NamedTuple):
    """Where shards are made, how many at the same time, and who says why none is made at the moment."""

    executor: Executor
    at_once: int = 1
    obstacle: Callable[[], str] = str


class ThisProcess(Executor):
    """Runs a function at once, in this process."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **keywords))
        return future


ALONE = Workers(ThisProcess())


def run_shards(
    workers: Workers, step: Step, make: MakeShard, shards: Iterable[Shard], progress: tqdm
) -> Iterator[Tuple[int, Dict[str, Any]]]:
    """Make all shards that are not done yet; yield the number and the facts of each one, in any order.

    Only a few shards for each worker are taken at a time, to keep a long input out of memory.

    Args:
        workers: Where the shards are made.
        step: The step that they belong to.
        make: A module's function, or ``functools.partial`` of one.
        shards: All shards; the iterable itself runs in this process.
        progress: The display, which each shard advances.
    """
    waiting = iter(shards)
    running: Dict[Future[Dict[str, Any]], Shard] = {}
    try:
        with _lost_workers():
            while True:
                for shard in waiting:
                    facts = step.done(shard.number)
                    if facts is not None:
                        progress.initial += shard.size  # which the rate ignores
                        progress.update(shard.size)
                        yield shard.number, facts
                        continue
                    running[workers.executor.submit(_make, step, make, shard)] = shard._replace(content=None)
                    if len(running) >= SHARDS_PER_WORKER * workers.at_once or workers.at_once == 1:
                        break
                if not running:
                    return
                for future in _completed(running, workers):
                    shard, facts = running.pop(future), future.result()
                    progress.update(shard.size)
                    yield shard.number, facts
    finally:
        for future in running:
            future.cancel()


def _completed(running: Iterable[Future[Any]], workers: Workers) -> Iterable[Future[Any]]:
    """Wait for at least one; log from time to time why it takes so long, if that is known."""
    while True:
        done = wait(running, WAIT_SECONDS, FIRST_COMPLETED).done
        if done:
            return done
        obstacle = workers.obstacle()
        if obstacle:
            logger.warning(obstacle)


def _make(step: Step, make: MakeShard, shard: Shard) -> Dict[str, Any]:
    names, facts = make(shard)
    return step.finish(shard.number, names, facts)


@contextlib.contextmanager
def _lost_workers() -> Iterator[None]:
    """Report the end of a worker as the user's error: a shard that takes too much memory would take it again."""
    try:
        yield
    except BrokenProcessPool as error:
        raise UserError(f"a worker process ended (out of memory?); use fewer --workers, and {RUN_AGAIN}") from error
    except CancelledError as error:  # distributed cancels all when it has lost the scheduler
        raise UserError(f"the Dask scheduler has ended, or cannot be reached any more; {RUN_AGAIN}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "distributed":
            raise
        raise UserError(f"the Dask cluster failed ({type(error).__name__}: {error}); {RUN_AGAIN}") from error


@contextlib.contextmanager
def open_workers(count: int, scheduler: Optional[str] = None, folder: Optional[Path] = None) -> Iterator[Workers]:
    """Yield workers, which end with the block, or with this process, however it ends; lock their folder.

    Args:
        count: Number of processes on this machine; 1 runs everything in this process.
        scheduler: Address of a Dask scheduler, such as ``tcp://10.0.0.1:8786``, whose workers are used instead.
        folder: Output folder, created if absent. All workers of that scheduler must see it under the same path.
    """
    with only_command_in(folder) if folder is not None else contextlib.nullcontext(), _workers(
        count, scheduler, folder
    ) as workers:
        yield workers


@contextlib.contextmanager
def _workers(count: int, scheduler: Optional[str], folder: Optional[Path]) -> Iterator[Workers]:
    gc.set_threshold(NEW_OBJECTS)  # in this process, which may be the only worker, as in the others
    if scheduler is not None:
        with _connected(scheduler) as client:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                _check_cluster(client, scheduler, folder)
            at_once = max(1, sum(client.nthreads().values()))
            yield Workers(client.get_executor(pure=False), at_once, functools.partial(_no_worker, client, scheduler))
    elif count <= 1:
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
    """Start the process that workers are forked from; it ignores Ctrl-C, which a terminal sends to all processes.

    It loads the modules of a command that is a package, once for all workers and while this process does something
    else. A command that is a single module is imported by each worker; Python warns if it has been loaded before.
    """
    from multiprocessing import forkserver

    command = sys.modules["__main__"].__spec__
    if command is not None and command.name.endswith(".__main__"):
        context.set_forkserver_preload([command.name])
    if threading.current_thread() is not threading.main_thread():  # which alone may change how signals are handled
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)


def _no_worker(client: Any, address: str) -> str:
    """Return a line if no worker is left that could make a shard."""
    try:
        workers = client.nthreads()
    except Exception:  # the scheduler does not answer; distributed ends all shards soon
        return f"the Dask scheduler {address} does not answer"
    return "" if workers else f"no worker is connected to {address}: start one (python -m dask worker {address})"


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Any]:
    try:
        from distributed import Client
    except ImportError as error:
        raise UserError(
            f"--scheduler: needs the package distributed, which is not installed: {INSTALL_DASK}"
        ) from error
    try:
        client = Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError, TypeError) as error:  # TypeError: tls:// without certificates
        raise _no_cluster(address, "no Dask scheduler answers", error) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except (OSError, TimeoutError) as error:
            raise _no_cluster(address, "no worker is connected to it", error) from error
        yield client


def _no_cluster(address: str, reason: str, error: Exception) -> UserError:
    return UserError(
        f"--scheduler {address}: {reason} ({error}); start `python -m dask scheduler` there and"
        f" `python -m dask worker {address}` on each machine, in this project's folder"
    )


def _check_cluster(client: Any, address: str, folder: Path) -> None:
    """Check at once, rather than fail after hours, that all workers have this code and see the output folder."""
    with tempfile.NamedTemporaryFile(prefix=".seen-", dir=folder) as marker:
        answers = client.run(_worker_facts, marker.name, on_error="return")
    for worker, answer in answers.items():
        name = f"--scheduler {address}: worker {worker}"
        if isinstance(answer, Exception):
            fix = "start it with `python -m dask worker`, in the project's folder, with its environment"
            raise UserError(f"{name} cannot load this project ({answer}); {fix}")
        code, sees_folder = answer
        if code != code_fingerprint():
            raise UserError(f"{name} runs another version of this project; use the same one")
        if not sees_folder:
            raise UserError(f"{name} does not see {folder}; every machine must reach it under the same path")


def _worker_facts(marker: str) -> Tuple[str, bool]:
    return code_fingerprint(), os.path.exists(marker)


@functools.lru_cache(maxsize=1)  # a worker's code is that of its first shard, even if the files change
def code_fingerprint() -> str:
    """Return a digest of this package's source; machines with different digests must not work together."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def add_worker_options(parser: argparse.ArgumentParser) -> None:
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
        " machines must see the output under the same path; tls:// with certificates from Dask's own settings",
    )


def workers_from_options(options: argparse.Namespace) -> contextlib.AbstractContextManager[Workers]:
    """Return the workers that the options of ``add_worker_options`` describe, for the folder ``options.output``."""
    return open_workers(options.workers, options.scheduler, options.output)


def with_absolute_paths(options: argparse.Namespace) -> argparse.Namespace:
    """Make the paths among the options absolute if ``--scheduler`` sends them to other machines."""
    if options.scheduler:
        for name, value in vars(options).items():
            if isinstance(value, Path):
                setattr(options, name, value.absolute())
    return options
