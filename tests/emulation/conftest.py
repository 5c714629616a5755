"""Fixtures for runs on emulated IPUs (README.md) and on this machine's TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from model.tasks import TASKS
from tests import ROOT
from tests.support.runs import metrics, read_json, run_command, variables, write_json

TOOL = Path(__file__).parent / "run.py"
VARIABLE = "IPU_EMULATION_ENV"
SOFTWARE = ["--execution.platform", "software", "--execution.device", "cpu", "--execution.xla", "false"]


class Run(NamedTuple):
    """A run's folder, the emulation's counts (empty for a run without the emulation), and what the run printed."""

    folder: Path
    counts: dict[str, Any]
    output: str

    def losses(self, name: str) -> list[float]:
        return [period["metrics"][name] for period in metrics(self.folder)]

    def weights(self) -> dict[str, np.ndarray]:
        return variables(self.folder, "weights")


class Emulation:
    """Runs this project's commands on emulated IPUs, and on stock TensorFlow."""

    def __init__(self, folder: Path):
        self._folder = folder

    def emulated(
        self, task: str, config: Path, name: str, *arguments: str, flags: tuple[str, ...] = (), end: str = ""
    ) -> Run:
        """Run a task on emulated IPUs with the emulation's ``flags``; it must succeed, or fail with message ``end``."""
        counts = self._folder / f"{name}.counts"
        tool = [sys.executable, str(TOOL), "--counts", str(counts), *flags, TASKS[task].program]
        command = [*tool, "--config", str(config), "--name", name, "--output-dir", str(self._folder), *arguments]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        output = ended.stdout + ended.stderr
        assert ended.returncode == 0 or (end and end in output), output[-4000:]
        return Run(self._folder / name, read_json(counts), output)

    def script(self, path: str) -> None:
        """Run a script of this project on Graphcore's code; it must succeed."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(TOOL), path]
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]

    def software(self, task: str, config: Path, name: str, *arguments: str) -> Run:
        """Run a task on stock TensorFlow in this process."""
        given = ("--name", name, "--output-dir", str(self._folder), *SOFTWARE, *arguments)
        outcome = run_command(task, config, *given)
        assert outcome.status == 0, outcome.errors
        return Run(self._folder / name, {}, "")


@pytest.fixture(scope="module")
def emulation(tmp_path_factory: pytest.TempPathFactory) -> Emulation:
    if VARIABLE not in os.environ:
        pytest.skip(f"{VARIABLE} names no environment of emulated IPUs (make ipu-emulation)")
    return Emulation(tmp_path_factory.mktemp("runs"))


def write_config(path: Path, published: str, **changes: Any) -> Path:
    """Write a published config with changes to a file, for IPUs and without a report."""
    shared = {"tensorboard": False, "report": False, "execution": {"platform": "graphcore", "precision": "float32"}}
    content = {"extends": str(ROOT / "configs" / f"{published}.json"), **shared, **changes}
    return write_json(path, content)
