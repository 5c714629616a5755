"""Folders and records that the runs of a module share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runs import write_dataset


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def dataset(root: Path) -> Path:
    return write_dataset(root / "data")
