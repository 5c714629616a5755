"""Workers on the machines of a Dask cluster: ``--scheduler`` of the commands that prepare data."""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import os
import tempfile
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, Iterator, Optional, Tuple

from data_utils.shards import Workers
from utilities.commands import RUN_AGAIN
from utilities.errors import UserError

CONNECT_SECONDS = 20
INSTALL_DASK = "pip install -r requirements-cluster.txt"


def add_scheduler_option(group: argparse._ArgumentGroup) -> None:
    """Add the option whose value opens workers on a cluster, ``options.elsewhere``."""
    group.add_argument(
        "--scheduler",
        dest="elsewhere",
        type=lambda address: functools.partial(open_dask_workers, address),
        metavar="ADDRESS",
        help="Dask scheduler of a cluster of machines, such as tcp://10.0.0.1:8786, to use instead of --workers; all"
        " machines must see the output under the same path; tls:// with certificates from Dask's own settings",
    )


@contextlib.contextmanager
def open_dask_workers(address: str, folder: Optional[Path] = None) -> Iterator[Workers]:
    """Yield the workers of a Dask scheduler, such as ``tcp://10.0.0.1:8786``.

    All of them must see the output folder, which is created if absent, under the same path.
    """
    with _connected(address) as client:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            _check_cluster(client, address, folder)
        at_once = max(1, sum(client.nthreads().values()))
        with _lost_cluster():
            yield Workers(client.get_executor(pure=False), at_once, functools.partial(_no_worker, client, address))


@contextlib.contextmanager
def _lost_cluster() -> Iterator[None]:
    try:
        yield
    except CancelledError as error:  # distributed cancels all when it has lost the scheduler
        raise UserError(f"the Dask scheduler has ended, or cannot be reached any more; {RUN_AGAIN}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "distributed":
            raise
        raise UserError(f"the Dask cluster failed ({type(error).__name__}: {error}); {RUN_AGAIN}") from error


def _no_worker(client: Any, address: str) -> str:
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
        problem = "needs the package distributed, which is not installed"
        raise UserError(f"--scheduler: {problem}: {INSTALL_DASK}") from error
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
        answers = client.run(_worker_answer, marker.name, on_error="return")
    for worker, answer in answers.items():
        name = f"--scheduler {address}: worker {worker}"
        if isinstance(answer, Exception):
            fix = "start it with `python -m dask worker`, in the project's folder, with its environment"
            raise UserError(f"{name} cannot load this project ({answer}); {fix}")
        code, sees_folder = answer
        if code != _code_fingerprint():
            raise UserError(f"{name} runs another version of this project; use the same one")
        if not sees_folder:
            raise UserError(f"{name} does not see {folder}; every machine must reach it under the same path")


def _worker_answer(marker: str) -> Tuple[str, bool]:
    return _code_fingerprint(), os.path.exists(marker)


@functools.lru_cache(maxsize=1)  # a worker's code is that of its first shard, even if the files change
def _code_fingerprint() -> str:
    """Return a digest of this package's source; machines with different digests must not work together."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
