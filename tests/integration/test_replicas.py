"""Runs of several processes through the real commands: one that dies, one that is stopped, one that goes on alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from execution.launch import free_ports
from execution.software.cluster.membership import Membership, tf_config
from tests.integration.small_runs import checkpoints, logged, state, train, write_config, write_dataset

ROOT = Path(__file__).parents[2]
UPDATES = 60
SECONDS_TO_STOP = 60
SHARDED = {"ipu_config": {"replicated_tensor_sharding": True}, "optimizer_state_offchip": False}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Of a run with LAMB and dropout; sharded, which is nothing to a process that is alone."""
    folder = tmp_path_factory.mktemp("replicas")
    optimizer = {"name": "LAMB", "learning_rate": {"max_learning_rate": 0.001}}
    return write_config(
        folder / "config.json", write_dataset(folder / "data"), UPDATES, optimizer_opts=optimizer, **SHARDED
    )


def command(config: Path, output: Path, *arguments: str) -> list[str]:
    return ["run_pretraining.py", "--config", str(config), "--output-dir", str(output), *arguments]


def begun(line: list[str], **environment: str) -> subprocess.Popen:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    own = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}  # or noise is shown
    return subprocess.Popen([sys.executable, *line], cwd=ROOT, env={**own, **environment}, **pipes)


def wait_for(condition: Any, *processes: subprocess.Popen, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        ended = [process for process in processes if process.poll() is not None]
        assert not ended, ended[0].communicate()[1][-4000:]
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.05)


def test_killed_stopped_and_ended_alone_is_one_run(config, tmp_path):
    output, plain = tmp_path / "shared", tmp_path / "plain"
    run = output / "run"

    # Started by hand; one is killed.
    with free_ports(2) as ports:
        addresses = tuple(f"localhost:{port}" for port in ports)
    line = command(config, output, "--name", "run")
    chief, other = (begun(line, TF_CONFIG=tf_config(Membership(addresses, index))) for index in range(2))
    wait_for(lambda: checkpoints(run), chief, other)
    other.kill()
    killed = time.monotonic()
    _, errors = chief.communicate(timeout=SECONDS_TO_STOP)
    assert time.monotonic() - killed < SECONDS_TO_STOP
    assert chief.returncode == 2
    assert f"error: replica 1 ({addresses[1]}) has ended" in errors and "--name run --resume" in errors
    assert "Traceback" not in errors
    other.communicate()

    # Started again by the launcher, it goes on; both are asked to stop.
    before = checkpoints(run)
    launcher = begun(["-m", "execution.launch", "--replicas", "2", "--", *line])
    wait_for(lambda: checkpoints(run)[-1] > before[-1], launcher)
    launcher.send_signal(signal.SIGTERM)
    printed, errors = launcher.communicate(timeout=SECONDS_TO_STOP * 2)
    assert launcher.returncode == 0, errors[-4000:]
    assert len(re.findall("to go on:", printed)) == 1 and "[1]" not in printed
    stopped = re.search(r"stopped by SIGTERM at step (\d+) of 60", printed)
    assert stopped is not None and checkpoints(run)[-1] == f"step-{int(stopped.group(1)):08d}"

    # Alone it comes to the end that it would have come to without all this.
    assert train(config, output, "--name", "run").status == 0
    assert train(config, plain, "--name", "run").status == 0
    assert [period["step"] for period in logged(run)] == [period["step"] for period in logged(plain / "run")]
    one, other_run = state(run), state(plain / "run")
    assert one.keys() == other_run.keys()
    for name in one:
        np.testing.assert_allclose(one[name], other_run[name], rtol=1e-3, atol=1e-4, err_msg=name)
    events = [json.loads(text)["event"] for text in (run / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    assert events.count("resume") == 2, events


def test_two_processes_of_two_stages_train_the_published_tiny_config(tmp_path):
    published = "configs/pretraining/pretrain_tiny_128_phase1.json"
    arguments = [
        "--config", published, "--generated-dataset", "true", "--output-dir", str(tmp_path), "--name", "tiny",
        "--global-batch.replicas", "2", "--global-batch.grad-acc-steps-per-replica", "6",
        "--total-num-train-samples", str(2 * 2 * 6 * 3), "--execution.pipeline-devices", "2",
        "--execution.precision", "float32", "--report", "false", "--tensorboard", "false",
    ]  # fmt: skip
    launched = ["-m", "execution.launch", "--replicas", "2", "--", "run_pretraining.py", *arguments]
    process = begun(launched)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-4000:]
    assert "2 processes, each stock TensorFlow" in errors and "pipeline, stages on /CPU:0, /CPU:1" in errors
    assert "[1]" not in errors
    periods = logged(tmp_path / "tiny")
    assert periods[-1]["step"] == 3 and np.isfinite(periods[-1]["metrics"]["mlm_loss"])
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_processes_must_share_the_micro_batches_evenly(config, tmp_path):
    addresses = ("localhost:1", "localhost:2", "localhost:3")
    process = begun(command(config, tmp_path), TF_CONFIG=tf_config(Membership(addresses, 1)))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and "3 processes cannot share 4 micro batches evenly" in lines[0]
    assert list(tmp_path.iterdir()) == []
