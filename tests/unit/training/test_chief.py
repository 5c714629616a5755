"""Agreements and refusals of processes, which are replaced by two threads."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints.folder import Checkpoint
from execution.interface import Update
from execution.processes import SINGLE_PROCESS, Processes
from execution.software.precision import FLOAT16
from execution.software.training_step import UpdateRule
from keras_extensions.backend import tf
from keras_extensions.listeners.signals import StopRequest
from model.losses import PretrainingObjective
from optimization.optimizers import AdamW
from settings.schema import TrainingConfig
from tests.support.fake_processes import run_as_processes
from training.chief import check_processes, on_chief, shared_position, shared_run_folder
from training.failures import run_failures
from training.machine import execution_options
from training.resume import Position
from training.run_folder import RunFolder
from utilities.errors import UserError
from utilities.metric_names import LOSS_SCALE, OVERFLOWS

SCALE = 4.0


def updates(gradients: list[list[float]], processes: Processes | None = None) -> dict[str, Any]:
    """Return the state of a float16 weight after these gradients, with an adaptive loss scale."""
    weight = tf.Variable([1.0, 2.0], dtype=tf.float16)
    optimizer = AdamW(learning_rate=0.1, rounding_seed=7)
    update = Update(1, loss_scale=SCALE, adaptive_loss_scale=True)
    collectives = None if processes is None else processes.collectives
    rule = UpdateRule(optimizer, PretrainingObjective(), update, [weight], FLOAT16, collectives)
    reported = [rule.apply([tf.constant(gradient)]) for gradient in gradients]
    return {
        "weight": weight.numpy().tolist(),
        "moments": [moment.numpy().tolist() for moment in optimizer.moments(weight)],
        "updates": int(optimizer.iterations),
        "scales": [float(one[LOSS_SCALE]) for one in reported] + [float(rule.loss_scale.factor)],
        "overflows": [float(one[OVERFLOWS]) for one in reported],
    }


@pytest.mark.parametrize(("first", "bad"), [(0.5, np.inf), (0.5, -np.inf), (0.5, np.nan), (-np.inf, np.inf)])
def test_overflow_in_a_process_skips_the_update_in_all(first, bad):
    own = [[[1.0, -2.0], [first, 0.5], [1.0, 1.0]], [[3.0, 1.0], [bad, 0.5], [-2.0, 1.0]]]
    states = run_as_processes(2, lambda processes: updates(own[processes.index], processes))
    assert states[0] == states[1]
    assert states[0]["overflows"] == [0, 1, 0] and states[0]["updates"] == 2
    assert states[0]["scales"] == [SCALE, SCALE, SCALE / 2, SCALE / 2]
    alone = updates([[4.0, -1.0], [bad, 1.0], [-1.0, 2.0]])
    assert states[0] == alone and alone["weight"] != [1.0, 2.0]


def test_all_processes_receive_the_position_of_the_chief():
    checkpoint = Checkpoint(Path("run/step-00000004/weights"), {"step": 4, "rewinds": 0})
    position = Position(4, (5, 6), 1, 2.5, checkpoint)
    states = run_as_processes(2, lambda processes: shared_position(processes, lambda: position))
    assert states == [position, position]


def test_error_of_the_chief_ends_all_processes():
    def fails() -> Position:
        raise UserError("diverges again and again")

    chief, other = run_as_processes(2, lambda processes: shared_position(processes, fails))
    assert isinstance(chief, UserError) and str(chief) == "diverges again and again"
    assert isinstance(other, UserError) and str(other) == "process 0: diverges again and again"


def test_only_the_chief_makes_the_run_folder(tmp_path):
    assert run_as_processes(2, lambda processes: on_chief(processes, lambda: [processes.index])) == [[0], None]
    assert on_chief(SINGLE_PROCESS, lambda: None) is None

    def folder(processes: Processes) -> tuple[str, bool]:
        with shared_run_folder(processes, lambda: RunFolder(tmp_path / "mine")) as run:
            return run.path.name, run.path == tmp_path / "mine"

    assert run_as_processes(2, folder) == [("mine", True), ("mine", False)]


@pytest.mark.parametrize(
    ("change", "data", "precision", "named"),
    [
        ({"output_dir": "elsewhere", "execution": {"threads": 1}}, "a", "float32", None),
        ({"seed": 5}, "a", "float32", "seed is 5 for process 1 and 42 for process 0"),
        ({"global_batches_per_log": 7}, "a", "float32", "global_batches_per_log is 7 for process 1"),
        ({}, "b", "float32", "the data set of process 1 is not the data of process 0"),
        ({}, "a", "float16", "execution.precision: process 1 computes in float16, process 0 in float32"),
    ],
)
def test_processes_must_have_the_same_settings(change, data, precision, named):
    def check(processes: Processes) -> str:
        own = processes.index == 1
        config = TrainingConfig.model_validate({"seed": 42, **(change if own else {})})
        check_processes(processes, config, data if own else "a", precision if own else "float32")
        return "consistent"

    chief, other = run_as_processes(2, check)
    if named is None:
        assert chief == other == "consistent"
    else:
        assert isinstance(other, UserError) and named in str(other)
        assert isinstance(chief, UserError) and str(chief) == f"process 1: {other}"


def test_an_error_of_one_process_ends_all_with_its_reason():
    def work(processes: Processes) -> str:
        with processes.together():
            if processes.index == 1:
                raise UserError("dataset_dir: /data has no größe")
        return "goes on"

    ends = run_as_processes(3, work)
    assert [str(end) for end in ends[::2]] == ["process 1: dataset_dir: /data has no größe"] * 2
    assert str(ends[1]) == "dataset_dir: /data has no größe" and all(isinstance(end, UserError) for end in ends)
    assert run_as_processes(2, lambda processes: work_alone(processes.together())) == ["done", "done"]
    with pytest.raises(UserError, match="alone"), SINGLE_PROCESS.together():
        raise UserError("alone")


def work_alone(block: Any) -> str:
    with block:
        pass
    return "done"


def test_parallel_micro_batches_are_those_of_one_process():
    def in_parallel(parallel: bool) -> list[int]:
        config = TrainingConfig.model_validate(
            {"global_batch": {"grad_acc_steps_per_replica": 4}, "execution": {"parallel_micro_batches": parallel}}
        )
        return run_as_processes(2, lambda processes: execution_options(config, processes).parallel_micro_batches)

    assert in_parallel(True) == [2, 2] and in_parallel(False) == [1, 1]


def test_full_disk_is_reported_with_the_name_to_resume():
    message = "metrics.jsonl: No space left .* --name mine --resume"
    with pytest.raises(UserError, match=message), run_failures(Processes(), StopRequest()) as current:
        current.folder = RunFolder(Path("runs/mine"))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "metrics.jsonl")
