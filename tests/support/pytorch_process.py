"""Runs PyTorch in a separate process, because it may need other versions of shared libraries than TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys

from tests import ROOT


def run_pytorch(module: str, *arguments: object) -> str:
    """Run ``python -m module`` where Transformers loads only PyTorch, offline, and return what it prints."""
    environment = {**os.environ, "USE_TF": "0", "USE_TORCH": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout
