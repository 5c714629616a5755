"""Each task's script starts as a command from any folder; other tests run the tasks in their own process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT


@pytest.mark.parametrize("script", sorted(ROOT.glob("run_*.py")), ids=lambda path: path.stem)
def test_a_script_is_a_command(script: Path, tmp_path: Path) -> None:
    helped = subprocess.run([sys.executable, script, "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert helped.returncode == 0 and script.name in helped.stdout and not helped.stderr
    missing = [sys.executable, script, "--config", "missing.json"]
    refused = subprocess.run(missing, cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 2 and refused.stderr.startswith("error: --config: cannot read missing.json")
