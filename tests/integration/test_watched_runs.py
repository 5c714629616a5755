"""Whole runs send nothing over the network and write no secret, and W&B shows a resumed run as one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from keras_extensions.listeners.wandb_run import ID_FILE
from tests.support.runs import logged, write_config, write_dataset, write_text, write_text_config
from tests.support.terminals import ROOT, on_terminal

pytestmark = pytest.mark.slow

HUGGING_FACE = "hf_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA1b"
PROGRAMS = (b"interrupted_run", b"run_pretraining.py")
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
    config = write_text_config(tmp_path / "c.json", about=f"made with {HUGGING_FACE}", wandb_tags=["a", HUGGING_FACE])
    trained = forbidden(
        *("run_pretraining.py", "--config", str(config), "--dataset-dir", str(data), "--name", "real"),
        *("--output-dir", str(tmp_path / "runs"), "--global-batches-per-log", "1"),
        *("--wandb-entity-name", OWN_SECRET),
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


def test_an_interrupted_and_resumed_training_is_one_run_of_wandb(tmp_path: Path) -> None:
    """On a terminal without a login, W&B asks nothing, and gets nothing that it would collect by itself."""
    pytest.importorskip("wandb")
    from tests.support.wandb_files import offline_runs

    data = write_dataset(tmp_path / "data")
    config = write_config(
        tmp_path / "c.json", data, updates=20, wandb_tags=["x", HUGGING_FACE], wandb_project_name="my project",
        keep_last=1, report=True,
    )  # fmt: skip
    command = ["--config", str(config), "--output-dir", str(tmp_path / "runs"), "--name", "a", "--enable-wandb"]
    run, home = tmp_path / "runs" / "a", tmp_path / "home"
    home.mkdir()
    first = on_terminal(["-m", "tests.support.interrupted_run", "10", *command], home, MY_API_TOKEN=OWN_SECRET)
    assert first.status == 128 + signal.SIGTERM, first.shown
    second = on_terminal(["run_pretraining.py", *command, "--resume"], home, MY_API_TOKEN=OWN_SECRET)
    assert second.status == 0, second.shown
    for shown in (first.shown, second.shown):
        assert not any(question in shown for question in ("wandb login", "API key", "(1)"))
        (folder,) = re.findall(r"W&B offline; to upload the run: wandb sync (\S+)", shown)
        assert Path(folder).is_dir() and run in Path(folder).parents

    parts = offline_runs(run)
    assert len(parts) == 2 and {part.id for part in parts} == {(run / ID_FILE).read_text().strip()}
    assert all(part.resumes for part in parts), "so that `wandb sync` appends"
    assert [part.exit_code for part in parts] == [1, 0], "interrupted, then complete"
    assert {(part.project, part.name, part.tags, part.host) for part in parts} == {
        ("my project", "a", ("x", "***"), "-")
    }
    assert parts[0].config["bert_config"]["hidden_size"] == 16 and "cpu" in parts[0].config["environment"]
    history = {**parts[0].history, **parts[1].history}
    periods = {line["step"]: line for line in logged(run) if "metrics" in line}
    assert history.keys() == periods.keys() and min(parts[1].history) == 12
    for step, line in periods.items():
        expected = {**line["metrics"], "samples": line["samples"], "learning_rate": line["learning_rate"]}
        assert {name: history[step][name] for name in expected} == pytest.approx(expected)
    for part in parts:  # of the checkpoints, only the one that is kept
        assert sorted(kind for kind, _ in part.artifacts.values()) == ["model", "report"]
        assert all(name.endswith(part.id) for name in part.artifacts) and part.system_metrics
    check_no_secret(tmp_path / "runs", first.shown + second.shown)
    files = [path for path in (run / "wandb").rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in files for program in PROGRAMS if program in path.read_bytes()]
