"""Locates real data; tests that need it skip, with a reason, if there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measuring import real_data_root


def real_data(*parts: str) -> Path:
    """Return the path of a real data file or folder; skip the calling test if it does not exist."""
    path = real_data_root().joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no real data at {path}; set BERT_REAL_DATA to a folder that holds {'/'.join(parts)}")
    return path
