"""Runs of a very small BERT on a written data set, through the real command line, that can be hit at a given step."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import run_pretraining
from keras_extensions.backend import tf
from keras_extensions.callbacks.outputs import MetricsFile
from tests.unit.data_utils.records.samples import (
    PREDICTIONS,
    SEQUENCE,
    VOCABULARY,
    example,
    sample,
    write,
    write_samples,
)
from utilities.cli import main

BATCH = 16
RECORDS = 90  # 5.6 global batches: epochs end within updates
TIMES = ("seconds", "throughput", "compiling", "packs_per_second", "tokens_per_second")


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the run gets a chance to save."""


class Outcome(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    output: str
    errors: str

    @property
    def error(self) -> str:
        """Its one line."""
        lines = [line for line in self.errors.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1 and "Traceback" not in self.errors, self.errors
        return lines[0]


def write_dataset(folder: Path, records: int = RECORDS, poisoned: int | None = None) -> Path:
    """Records in three files; the loss of the poisoned one is no number."""
    folder.mkdir(parents=True)
    bounds = np.linspace(0, records, 4).astype(int)
    for number in range(3):
        path = folder / f"part-{number}.tfrecord"
        if poisoned is None:
            write_samples(path, range(bounds[number], bounds[number + 1]))
        else:
            write(path, [payload(record, record == poisoned) for record in range(bounds[number], bounds[number + 1])])
    return folder


def payload(record: int, poisoned: bool) -> bytes:
    """A record; finite weights whose sum is not."""
    return example(sample(record, **({"masked_lm_weights": [3e38, 3e38, 3e38]} if poisoned else {})))


def write_config(path: Path, dataset: Path, updates: int = 26, **changes: Any) -> Path:
    """A config of two updates an execution and a checkpoint every second execution."""
    config: dict[str, Any] = {
        "bert_config": {
            "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 32,
            "vocab_size": VOCABULARY, "max_position_embeddings": SEQUENCE,
        },
        "dataset_dir": str(dataset),
        "max_seq_length": SEQUENCE,
        "max_predictions_per_seq": PREDICTIONS,
        "global_batch": {"micro_batch_size": 4, "grad_acc_steps_per_replica": 4},
        "total_num_train_samples": BATCH * updates,
        "optimizer_opts": {"name": "AdamW", "learning_rate": {"max_learning_rate": 0.01}},
        "global_batches_per_log": 2,
        "ckpt_every_n_steps_per_execution": 2,
        "enable_recomputation": False,
        "execution": {"xla": False, "platform": "software", "precision": "float32"},
        "embedding_serialization_factor": 1,
        "tensorboard": False,
        "report": False,
        **changes,
    }  # fmt: skip
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def train(config: Path, output: Path, *arguments: str) -> Outcome:
    """``run_pretraining.py`` in this process."""
    printed, errors = io.StringIO(), io.StringIO()
    command = ["--config", str(config), "--output-dir", str(output), *arguments]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        status = main("pretraining", run_pretraining.run, command)
    return Outcome(status, printed.getvalue(), errors.getvalue())


@contextlib.contextmanager
def at_step(monkeypatch: Any, step: int, action: Callable[[], None]) -> Iterator[None]:
    """Does something when a run has logged ``step``, before anything else can happen."""
    original = MetricsFile.period

    def period(listener: MetricsFile, period: Any) -> None:
        original(listener, period)
        if period.step == step:
            action()

    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "period", period)
        yield


def kill() -> None:
    """Ends the run without any of its clean-up saving something."""
    raise Killed


def terminate() -> None:
    """SIGTERM to this process."""
    os.kill(os.getpid(), signal.SIGTERM)


def killed_at(monkeypatch: Any, step: int, config: Path, output: Path, *arguments: str) -> None:
    """A run that is killed when ``step`` is logged."""
    with at_step(monkeypatch, step, kill), contextlib.suppress(Killed):
        train(config, output, *arguments)
        raise AssertionError("the run was not killed")


def checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").glob("*step-*"))


def state(run: Path) -> dict[str, np.ndarray]:
    """Everything in the last checkpoint, weights and optimizer, read by TensorFlow alone."""
    folder = sorted((run / "checkpoints").glob("step-*"))[-1]
    values = {}
    for part in ("weights", "optimizer"):
        reader = tf.train.load_checkpoint(str(folder / part))
        for name in reader.get_variable_to_shape_map():
            if name.endswith("VARIABLE_VALUE"):
                values[f"{part}/{name}"] = reader.get_tensor(name)
    assert len(values) > 20
    return values


def logged(run: Path) -> list[dict[str, Any]]:
    """What the run logged, without the times."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in TIMES} for line in lines]


def assert_same_run(left: Path, right: Path) -> None:
    """Weights, moments, counter and logged losses, to the bit."""
    one, other = state(left), state(right)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    assert logged(left) == logged(right)
