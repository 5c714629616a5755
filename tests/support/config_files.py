"""A small valid config, and functions that write it and run a command on it."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from planning.overview import plan_lines
from settings.flags import parse_flags
from settings.loading import Complete, LoadedConfig, resolve
from tasks.cli import main
from tests.support.command_errors import assert_refused

TINY: dict[str, Any] = {
    "dataset_dir": "data",
    "bert_config": {
        "hidden_size": 128,
        "vocab_size": 1000,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 512,
    },
    "global_batch": {"micro_batch_size": 2, "replicas": 1, "grad_acc_steps_per_replica": 12},
    "ipu_config": {
        "pipeline_stages": [["emb"], ["hid", "hid", "enc_out"], ["pool", "heads"]],
        "pipeline_device_mapping": [0, 1, 0],
        "matmul_available_memory_proportion_per_pipeline_stage": [0.2, 0.2],
    },
    "total_num_train_samples": 2400,
}
FINE_TUNING: dict[str, Any] = {"bert_model_name": "bert-base-uncased", "num_epochs": 3}


def changed(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with dotted keys set; the value ``...`` removes a key."""
    values = copy.deepcopy(base)
    for name, value in change.items():
        *sections, key = name.split("/")
        target = values
        for section in sections:
            target = target.setdefault(section, {})
        if value is ...:
            target.pop(key, None)
        else:
            target[key] = value
    return values


def write(folder: Path, values: Any, name: str = "run.json") -> Path:
    """Write a config, or any text, into ``folder``."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = values if isinstance(values, str) else json.dumps(values)
    path.write_text(text, encoding="utf-8")
    return path


def load_config(task: str, argv: Sequence[str], complete: Complete | None = None) -> LoadedConfig:
    """Return the config that a command line specifies; for ``complete`` see :func:`settings.loading.resolve`."""
    options, values = parse_flags(task, argv)
    return resolve(task, options.config or (), values, complete=complete)


def never_run(loaded: object) -> int:
    raise AssertionError("a broken config reached the run")


def run_command(task: str, argv: list[str]) -> int:
    return main(task, argv, never_run)


def assert_config_refused(
    task: str, values: Any, words: Sequence[str], folder: Path, capsys: pytest.CaptureFixture, *flags: str
) -> None:
    """Check that a config, or any text, gives exit status 2, one line that has the words, and no output."""
    status, shown = run_command(task, ["--config", str(write(folder, values)), *flags]), capsys.readouterr()
    assert_refused(status, shown, *words)
    assert shown.out == ""


def plan_of(loaded: LoadedConfig) -> dict[str, str]:
    """Return the lines of the plan by their first column."""
    cells = [line.strip().split("  ", 1) for line in plan_lines(loaded) if "  " in line.strip()]
    return {first: " ".join(rest.split()) for first, rest in cells}
