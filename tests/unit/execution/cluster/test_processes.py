"""What processes of stock TensorFlow do for a run: shares, log lines, and the loss of one."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from execution.software.cluster.collectives import buckets
from execution.software.cluster.membership import TF_CONFIG, Membership, tf_config
from execution.software.cluster.process_group import ClusterProcesses
from keras_extensions.backend import tf
from keras_extensions.listeners.signals import StopRequest
from settings.schema import TrainingConfig
from tasks.cli import main
from tests.support.command_errors import assert_refused
from tests.support.config_files import TINY, run_command, write
from training.failures import CurrentRun, process_failures
from training.machine import configured_processes
from training.run_folder import RunFolder
from utilities.errors import ProcessLostError, UserError


def test_processes_must_share_the_micro_batches_evenly(monkeypatch):
    monkeypatch.setenv(TF_CONFIG, tf_config(Membership(("localhost:1", "localhost:2", "localhost:3"), 1)))
    config = TrainingConfig.model_validate({"global_batch": {"grad_acc_steps_per_replica": 4}})
    with pytest.raises(UserError, match="3 processes cannot share 4 micro batches evenly"):
        configured_processes(config)


def test_a_command_refuses_a_broken_variable(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(TF_CONFIG, "{")
    assert_refused(run_command("pretraining", ["--config", str(write(tmp_path, TINY))]), capsys.readouterr(), TF_CONFIG)


@pytest.mark.parametrize(("index", "said"), [(0, ["loading", "loss is NaN"]), (1, ["loss is NaN"])])
def test_of_several_processes_the_others_only_warn(
    index: int, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(TF_CONFIG, tf_config(Membership(("localhost:1", "localhost:2"), index)))

    def run(loaded: object) -> None:
        logging.info("loading")
        logging.warning("loss is NaN")

    with caplog.at_level(logging.INFO):  # afterwards, the level is that of before
        assert main("pretraining", ["--config", str(write(tmp_path, TINY))], run) == 0
    assert caplog.messages == said


def test_lost_process_is_reported_in_one_line(monkeypatch):
    monkeypatch.setattr("execution.software.cluster.heartbeat.SECONDS_TO_STAY", 0.0)
    monkeypatch.setattr("execution.software.cluster.heartbeat.probe", lambda address: "refuses")
    current, member = CurrentRun(), ClusterProcesses(Membership(("host0:1", "host1:1"), 1))
    current.folder = RunFolder(Path("runs/mine"))
    with pytest.raises(ProcessLostError) as lost, process_failures(member, StopRequest(), current):
        raise tf.errors.UnavailableError(None, None, "Collective ops is aborted by: /task:0 Connection reset")
    assert "process 0 (host0:1) has ended" in str(lost.value)
    assert "--name mine --resume" in str(lost.value) and "\n" not in str(lost.value)


def test_buckets_contain_all_tensors_in_order():
    assert [bucket.members for bucket in buckets([4, 4, 9, 1], ["a", "a", "b", "a"], limit=9)] == [[0, 1, 3], [2]]
