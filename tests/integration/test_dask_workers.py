"""Data that the machines of a Dask cluster prepare are those that one process prepares."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_utils.demo_corpus import write_demo_corpus
from data_utils.records.manifest import WORK_FOLDER
from data_utils.text import sources
from tests.integration.test_preprocessing import run
from tests.integration.test_preprocessing_restart import OPTIONS
from tests.support.runs import content

pytestmark = pytest.mark.slow


def test_a_cluster_of_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(sources, "SMALLEST_SHARD", 4000)
    monkeypatch.setattr(sources, "LARGEST_SHARD", 4000)
    write_demo_corpus(tmp_path / "text.txt", words=30_000, packages=())
    monkeypatch.chdir(tmp_path)  # paths are relative to the command's folder, not to the workers'
    assert run("--text", "text.txt", "--output", "alone", "--workers", 1, *OPTIONS) == 0
    with distributed.LocalCluster(n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None) as cluster:
        assert run("--text", "text.txt", "--output", "out", "--scheduler", cluster.scheduler_address, *OPTIONS) == 0
    assert content(tmp_path / "out") == content(tmp_path / "alone")
    assert not (tmp_path / "out" / WORK_FOLDER).exists()
