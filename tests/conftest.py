"""Settings of all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # for CPUs; with 0, TensorFlow's tests run on a GPU instead


@pytest.fixture(scope="session", autouse=True)
def own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the tests a cache folder of their own. Matplotlib's fonts stay where they are."""
    with pytest.MonkeyPatch.context() as patch:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        patch.setenv("MPLCONFIGDIR", os.environ.get("MPLCONFIGDIR") or os.path.join(cache, "matplotlib"))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
