"""Configs of GLUE and CLUE, and the key ``seeds``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_utils.classification.benchmarks import TASKS
from data_utils.classification.tasks import CLUE
from settings.loading import load_config
from settings.schema import TrainingConfig
from tests import ROOT
from tests.support.config_files import write
from utilities.errors import UserError

CONFIGS = ROOT / "configs"


def load(path: Path, *flags: str) -> TrainingConfig:
    return load_config("classification", ["--config", str(path), *flags]).config


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.benchmark == CLUE])
def test_every_clue_task_has_a_config_that_says_its_command(name: str) -> None:
    stem = name if name in ("csl", "wsc") else "clue_base"
    path = CONFIGS / "clue" / f"{stem}.json"
    config = load(path, *(() if stem == name else ("--glue-task", name)))
    assert (config.glue_task, config.bert_model_name) == (name, "bert-base-chinese")
    assert (config.samples_per_update, config.num_epochs) == {"csl": (4, 3), "wsc": (8, 50)}.get(name, (32, 3))
    command = json.loads(path.read_text(encoding="utf-8"))["about"]["command"]
    assert f"--config configs/clue/{stem}.json" in command and (stem == name or name in command)


BASE = {"bert_model_name": "bert-base-uncased", "num_epochs": 3}


@pytest.mark.parametrize(
    ("task", "values", "message"),
    [
        ("squad", {"seeds": [1, 2]}, "seeds .*squad trains with one seed; set seed"),
        ("classification", {"glue_task": "rte", "seeds": [4, 4]}, "seeds .*4 is listed twice"),
        ("classification", {"glue_task": "rte", "seeds": [4], "do_training": False}, "nothing to vary"),
        ("classification", {"glue_task": "rte", "seeds": []}, "seeds .*list of whole numbers"),
        ("classification", {"glue_task": "rte", "seeds": [-1]}, "seeds"),
    ],
)
def test_broken_seeds(task: str, values: dict, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, {**BASE, **values})
    with pytest.raises(UserError, match=message):
        load_config(task, ["--config", str(path)])
