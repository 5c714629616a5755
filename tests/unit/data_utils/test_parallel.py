"""Work on processes and on a scheduler: results, errors, lost workers, and incompatible machines."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from data_utils import parallel
from data_utils.parallel import Pool
from utilities.errors import UserError


def square(number: int) -> int:
    return number * number


def process(_: int) -> int:
    return os.getpid()


def fail(number: int) -> int:
    if number == 5:
        raise UserError("number 5 is broken; correct it")
    return number


def die(_: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def die_once(mark: Path) -> str:
    if mark.name == "fatal" and not mark.exists():
        mark.touch()
        die(0)
    return mark.name


def test_one_worker_or_little_work_is_done_in_this_process() -> None:
    with Pool(1) as pool:
        assert list(pool.map(process, range(3))) == [os.getpid()] * 3
    with Pool(8) as pool:
        assert list(pool.map(process, range(100), size=1000)) == [os.getpid()] * 100
        assert list(pool.map(process, [1])) == [os.getpid()]
        assert list(pool.map(process, [])) == []


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2) as pool:
        pool.begin(["data_utils.records.writer"])
        yield pool


def test_two_workers_take_items_as_needed(pool: Pool) -> None:
    assert sorted(pool.map(square, iter(range(50)))) == [n * n for n in range(50)]
    workers = set(pool.map(process, range(50)))
    assert os.getpid() not in workers and len(workers) <= 2
    taken = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    results = pool.map(square, items())
    next(results)
    assert len(taken) <= 10
    results.close()


def test_an_error_of_the_work_is_raised(pool: Pool) -> None:
    with pytest.raises(UserError, match="number 5 is broken; correct it"):
        list(pool.map(fail, range(10)))
    assert sorted(pool.map(square, range(3))) == [0, 1, 4]  # and the workers are still alive


def test_the_work_of_a_killed_worker_is_done_again(tmp_path: Path) -> None:
    marks = [tmp_path / name for name in ("a", "b", "fatal", "c", "d", "e")]
    with Pool(2) as pool:
        assert sorted(pool.map(die_once, marks)) == ["a", "b", "c", "d", "e", "fatal"]
        for worker in set(pool.map(process, range(9))):  # killed while idle
            os.kill(worker, signal.SIGKILL)
        assert sorted(pool.map(square, range(9))) == [n * n for n in range(9)]
        with pytest.raises(UserError, match="out of memory"):
            list(pool.map(die, range(4)))


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


def test_a_running_scheduler(scheduler: str, tmp_path: Path) -> None:
    (tmp_path / "input").touch()
    with Pool(scheduler=scheduler, folders=[tmp_path], files=[tmp_path / "input"]) as pool:
        assert sorted(pool.map(square, range(20))) == [n * n for n in range(20)]
        assert os.getpid() not in set(pool.map(process, [1]))
    assert [path.name for path in tmp_path.iterdir()] == ["input"]


def test_unsuitable_machines_are_refused(scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        Pool(scheduler=scheduler, folders=[tmp_path], files=[tmp_path / "absent"]) as pool,
        pytest.raises(UserError, match=r"does not see .*absent; every machine"),
    ):
        list(pool.map(square, range(5)))
    with (
        Pool(scheduler="tcp://127.0.0.1:9") as pool,
        pytest.raises(UserError, match=r"--scheduler tcp://127.0.0.1:9: no Dask scheduler answers"),
        monkeypatch.context() as patch,
    ):
        patch.setattr(parallel, "CONNECT_SECONDS", 1)
        list(pool.map(square, range(5)))
    monkeypatch.setattr(parallel, "code_fingerprint", lambda: "another")
    with Pool(scheduler=scheduler) as pool, pytest.raises(UserError, match="another version of this project"):
        list(pool.map(square, range(5)))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_scheduler_with_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Dask's own settings, as the guide says; without them, no connection."""
    import dask
    from distributed import LocalCluster

    certificate, key = str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    names = {f"{part}.{kind}" for part in ("client", "scheduler", "worker") for kind in ("cert", "key")}
    files = {"ca-file": certificate, **{name: key if name.endswith("key") else certificate for name in names}}
    settings = {f"distributed.comm.tls.{name}": path for name, path in files.items()}
    encrypted = {"distributed.comm.require-encryption": True}
    started = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with dask.config.set({**settings, **encrypted}), LocalCluster(protocol="tls://", **started) as cluster:
        assert cluster.scheduler_address.startswith("tls://")
        with Pool(scheduler=cluster.scheduler_address) as pool:
            assert sorted(pool.map(square, range(5))) == [0, 1, 4, 9, 16]
        monkeypatch.setattr(parallel, "CONNECT_SECONDS", 3)
        with (
            dask.config.set({**dict.fromkeys(settings), "distributed.comm.require-encryption": None}),
            Pool(scheduler=cluster.scheduler_address) as pool,
            pytest.raises(UserError, match=r"--scheduler tls://.*TLS configuration"),
        ):
            list(pool.map(square, range(5)))
