"""Runs of several processes through the real commands: a death, a stop, and a resume by one process."""

from __future__ import annotations

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
from tests import ROOT
from tests.support.fine_tuning_runs import PIECES, write_pieces, write_sst2
from tests.support.fine_tuning_runs import write_config as write_classification
from tests.support.runs import checkpoints, events, logged, read_json, state, train, write_config, write_dataset

pytestmark = pytest.mark.slow

UPDATES = 60
BAD_RECORD, BAD_STEP = 70, 6  # the batch with a loss of NaN, and the step that shows it
SECONDS_TO_STOP = 180
SHARDED = {"ipu_config": {"replicated_tensor_sharding": True}, "optimizer_state_offchip": False}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """The config of a run with LAMB, dropout, one rewind, and sharding, which has no effect in a single process."""
    folder = tmp_path_factory.mktemp("processes")
    optimizer = {"name": "LAMB", "learning_rate": {"max_learning_rate": 0.001}}
    dataset = write_dataset(folder / "data", records=16 * (UPDATES + 4), poisoned=BAD_RECORD)
    more = {"data": {"shuffle": False}, "on_divergence": "rewind", **SHARDED}
    return write_config(folder / "config.json", dataset, UPDATES, optimizer_opts=optimizer, **more)


def command(config: Path, output: Path, *arguments: str) -> list[str]:
    return ["run_pretraining.py", "--config", str(config), "--output-dir", str(output), *arguments]


def begun(line: list[str], **environment: str) -> subprocess.Popen:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    own = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}  # or noise is shown
    return subprocess.Popen([sys.executable, *line], cwd=ROOT, env={**own, **environment}, **pipes)


def said_by_process_1(text: str) -> list[str]:
    return [line for line in text.splitlines() if "[1]" in line]


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

    # Started by hand; both processes rewind, and one is killed.
    with free_ports(2) as ports:
        addresses = tuple(f"localhost:{port}" for port in ports)
    line = command(config, output, "--name", "run")
    chief, other = (begun(line, TF_CONFIG=tf_config(Membership(addresses, index))) for index in range(2))
    wait_for(lambda: "rewind" in events(run) and checkpoints(run)[-1] >= "step-00000004", chief, other)
    other.kill()
    _, errors = chief.communicate(timeout=SECONDS_TO_STOP)
    assert chief.returncode == 2
    assert f"error: process 1 ({addresses[1]}) has ended" in errors and "--name run --resume" in errors
    assert "Traceback" not in errors
    other.communicate()

    # Started again by the launcher, the run resumes; both processes are asked to stop.
    before = checkpoints(run)
    launcher = begun(["-m", "execution.launch", "--processes", "2", "--", *line])
    wait_for(lambda: checkpoints(run)[-1] > before[-1], launcher)
    launcher.send_signal(signal.SIGTERM)
    printed, errors = launcher.communicate(timeout=SECONDS_TO_STOP * 2)
    assert launcher.returncode == 128 + signal.SIGTERM, errors[-4000:]
    assert "ended with status" not in errors
    assert len(re.findall("to resume:", printed)) == 1 and "[1]" not in printed
    stopped = re.search(r"stopped by SIGTERM at step (\d+) of 60", printed)
    assert stopped is not None and checkpoints(run)[-1] == f"step-{int(stopped.group(1)):08d}"

    # A single process brings the run to the same end as without interruptions.
    for folder in (output, plain):
        train(config, folder, "--name", "run", status=0)
    assert [period["step"] for period in logged(run)] == [period["step"] for period in logged(plain / "run")]
    one, other_run = state(run), state(plain / "run")
    assert one.keys() == other_run.keys()
    for name in one:
        np.testing.assert_allclose(one[name], other_run[name], rtol=1e-4, atol=1e-5, err_msg=name)
    assert events(run) == ["begin", "rewind", "resume", "interrupt", "resume", "end"]


def test_a_classification_in_float16_on_packs(tmp_path):
    """Two processes fine-tune twice, with an adaptive loss scale and sharded moments; the chief scores every epoch."""
    write_sst2(tmp_path)
    write_pieces(tmp_path / "vocab.txt", PIECES)
    execution = {"xla": False, "platform": "software", "device": "cpu", "precision": "float16"}
    optimizer = {"name": "AdamW", "learning_rate": {"max_learning_rate": 0.003}, "loss_scaling": "auto"}
    config = write_classification(
        tmp_path, "sst2", glue_task="sst2", num_epochs=5, execution=execution, optimizer_opts=optimizer,
        packing={"max_sequences_per_pack": 3},
        global_batch={"micro_batch_size": 4, "grad_acc_steps_per_replica": 2}, global_batches_per_log=5,
        evaluation={"every": "epoch", "patience": 4}, **SHARDED,
    )  # fmt: skip
    line = ["run_seq_classification.py", "--config", str(config), "--name", "both"]
    process = begun(["-m", "execution.launch", "--processes", "2", "--", *line])
    printed, errors = process.communicate(timeout=600)
    assert process.returncode == 0 and not said_by_process_1(printed + errors), errors[-4000:]
    run = tmp_path / "runs" / "both"
    lines = logged(run)
    periods = [line for line in lines if "metrics" in line]
    result = {line["step"]: line["evaluation"]["accuracy"] for line in lines if "evaluation" in line}
    assert len(result) > 1 and read_json(run / "scores.json")["accuracy"] == max(result.values()) > 0.8
    best = min(step for step, accuracy in result.items() if accuracy == max(result.values()))
    assert read_json(run / "checkpoints" / "best.json") == {"step": best}
    assert all(np.isfinite(period["metrics"]["loss"]) for period in periods)
    assert {"loss_scale", "overflows"} <= periods[-1]["metrics"].keys()


@pytest.mark.long  # room: pipeline
def test_two_processes_of_two_stages_train_the_published_tiny_config(tmp_path):  # room: pipeline
    published = "configs/pretraining/pretrain_tiny_128_phase1.json"
    arguments = [
        "--config", published, "--generated-dataset", "true", "--output-dir", str(tmp_path), "--name", "tiny",
        "--global-batch.replicas", "2", "--global-batch.grad-acc-steps-per-replica", "6",
        "--total-num-train-samples", str(2 * 2 * 6 * 2), "--execution.pipeline-devices", "2",
        "--execution.precision", "float32", "--report", "false", "--tensorboard", "false",
    ]  # fmt: skip
    launched = ["-m", "execution.launch", "--processes", "2", "--", "run_pretraining.py", *arguments]
    process = begun(launched)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-4000:]
    assert "2 processes, each stock TensorFlow" in errors and "pipeline, stages on /CPU:0, /CPU:1" in errors
    assert not said_by_process_1(errors)
    periods = logged(tmp_path / "tiny")
    assert periods[-1]["step"] == 2 and np.isfinite(periods[-1]["metrics"]["mlm_loss"])
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
