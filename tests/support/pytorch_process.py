"""Runs PyTorch in a separate process, because it may need other versions of shared libraries than TensorFlow."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from tests import ROOT

NEEDS_PYTORCH = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs PyTorch: pip install -r requirements-bench.txt"
)


def run_pytorch(module: str, *arguments: object) -> str:
    """Run ``python -m module`` where Transformers loads only PyTorch, offline, and return what it prints."""
    environment = {**os.environ, "USE_TF": "0", "USE_TORCH": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout
