"""Whole runs send nothing over the network and write no secret."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.runs import write_text, write_text_config
from tests.support.terminals import ROOT

pytestmark = pytest.mark.slow

HUGGING_FACE = "hf_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA1b"
OWN_SECRET = "correct-horse-battery-staple"


def forbidden(*arguments: str, **variables: str) -> subprocess.CompletedProcess:
    """Run a command with the network forbidden."""
    command = [sys.executable, "-m", "tests.support.no_network", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.parametrize(
    "code",
    [
        "import urllib.request as u; u.urlopen('http://192.0.2.1', timeout=1)",
        "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)",
        "import socket; socket.gethostbyname('example.org')",
    ],
)
def test_the_network_is_really_forbidden(tmp_path: Path, code: str) -> None:
    path = tmp_path / "script.py"
    path.write_text(code)
    outcome = forbidden(str(path))
    assert outcome.returncode == 77 and "network: " in outcome.stderr


def test_from_text_to_comparison_without_the_network_and_without_secrets(tmp_path: Path) -> None:
    """Preparation, training and report run by the users' commands."""
    text = write_text(tmp_path / "text.txt")
    data = tmp_path / "data"
    prepared = forbidden(
        *("data_utils.text", "--text", str(text), "--output", str(data), "--vocab-size", "200", "--workers", "1"),
        *("--max-seq-length", "32", "--max-predictions", "5", "--duplicate-factor", "1"),
    )
    assert prepared.returncode == 0, prepared.stderr
    config = write_text_config(tmp_path / "c.json", about=f"made with {HUGGING_FACE}")
    trained = forbidden(
        *("run_pretraining.py", "--config", str(config), "--dataset-dir", str(data), "--name", "real"),
        *("--output-dir", str(tmp_path / "runs"), "--global-batches-per-log", "1"),
        *("--wandb-entity-name", OWN_SECRET, "--wandb-tags", "a", HUGGING_FACE),  # room: wandb
        MY_API_TOKEN=OWN_SECRET,
    )
    assert trained.returncode == 0, trained.stderr
    assert (tmp_path / "runs" / "real" / "report.html").exists()
    check_no_secret(tmp_path / "runs", trained.stdout + trained.stderr)


def check_no_secret(runs: Path, shown: str) -> None:
    for secret in (HUGGING_FACE, OWN_SECRET):
        assert secret not in shown
        for path in runs.rglob("*"):
            if path.is_file():
                assert secret.encode() not in path.read_bytes(), path
