"""Shards on a Dask scheduler: results, errors, a lost cluster, and incompatible machines."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from data_utils import dask_workers
from data_utils.dask_workers import open_dask_workers
from data_utils.shards import ThisProcess, Workers
from tests.unit.data_utils.test_shards import fail, numbers, run, square, squares
from utilities.errors import UserError


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")

    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


def test_a_lost_scheduler_is_one_line(tmp_path: Path) -> None:
    """Dask's client cancels all futures of a scheduler that it has lost."""

    class Lost(ThisProcess):
        def submit(self, *_: Any, **__: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    ended = "scheduler has ended, or cannot be reached any more; run the command again"
    with pytest.raises(UserError, match=ended), dask_workers._lost_cluster():
        list(run(Workers(Lost()), tmp_path, square, numbers(3)))


def test_the_last_worker_of_a_cluster_is_missed(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
        open_dask_workers(cluster.scheduler_address, tmp_path) as workers,
    ):
        assert workers.obstacle() == ""
        cluster.scale(0)
        until = time.monotonic() + 30
        while not workers.obstacle() and time.monotonic() < until:
            time.sleep(0.1)
        assert workers.obstacle().startswith(f"no worker is connected to {cluster.scheduler_address}: start one")


def test_a_running_scheduler(scheduler: str, tmp_path: Path) -> None:
    with open_dask_workers(scheduler, tmp_path / "out") as workers:
        assert squares(workers, tmp_path / "out", 20) == {n: n * n for n in range(20)}
        with pytest.raises(UserError, match="number 5 is broken"):
            list(run(workers, tmp_path, fail, numbers(10)))
    assert not list((tmp_path / "out").glob(".seen*"))


def test_unsuitable_machines_are_refused(scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_workers, "CONNECT_SECONDS", 1)
    with (
        pytest.raises(UserError, match=r"--scheduler tcp://127.0.0.1:9: no Dask scheduler answers"),
        open_dask_workers("tcp://127.0.0.1:9"),
    ):
        pass
    monkeypatch.setattr(dask_workers, "CONNECT_SECONDS", 20)
    with monkeypatch.context() as patch:
        patch.setattr(dask_workers, "_code_fingerprint", lambda: "another")
        with pytest.raises(UserError, match="another version"), open_dask_workers(scheduler, tmp_path):
            pass
    monkeypatch.setattr(dask_workers, "_worker_answer", functools.partial(_worker_elsewhere))
    with pytest.raises(UserError, match="does not see"), open_dask_workers(scheduler, tmp_path):
        pass
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(UserError, match=r"pip install -r requirements-cluster\.txt"), open_dask_workers(scheduler):
        pass


def _worker_elsewhere(marker: str) -> tuple[str, bool]:
    return dask_workers._code_fingerprint(), os.path.exists(marker + "-elsewhere")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_scheduler_with_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Dask's own settings, as the guide says; without them, no connection."""
    dask = pytest.importorskip("dask")
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
        with open_dask_workers(cluster.scheduler_address) as workers:
            assert squares(workers, tmp_path, 5) == {n: n * n for n in range(5)}
        monkeypatch.setattr(dask_workers, "CONNECT_SECONDS", 3)
        with (
            dask.config.set({**dict.fromkeys(settings), "distributed.comm.require-encryption": None}),
            pytest.raises(UserError, match=r"--scheduler tls://.*TLS configuration"),
            open_dask_workers(cluster.scheduler_address),
        ):
            pass
