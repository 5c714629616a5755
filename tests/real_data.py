"""Where tests and benchmarks find real data: one setting, and a skip with a reason where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def real_data_root() -> Path:
    """The folder named by ``BERT_REAL_DATA``, or ``../shared/data`` beside the repository."""
    return Path(os.environ.get("BERT_REAL_DATA") or REPOSITORY.parent / "shared" / "data")


def real_data(*parts: str) -> Path:
    """Path of a real data file or folder; skips the calling test where it is absent."""
    path = real_data_root().joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no real data at {path}; set BERT_REAL_DATA to a folder that holds {'/'.join(parts)}")
    return path
