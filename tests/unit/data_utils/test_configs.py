"""Configs of SQuAD, GLUE and CLUE: their sections."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_utils.classification.benchmarks import TASKS
from data_utils.classification.tasks import CLUE
from settings.schema import TrainingConfig
from tests import ROOT
from tests.support.config_files import load_config, write
from utilities.errors import UserError

CONFIGS = ROOT / "configs"
SQUAD = CONFIGS / "squad" / "squad_base.json"


def load(task: str, path: Path, *flags: str) -> TrainingConfig:
    return load_config(task, ["--config", str(path), *flags]).config


def test_published_defaults_of_squad() -> None:
    squad = load("squad", SQUAD).squad
    assert (squad.doc_stride, squad.max_query_length, squad.n_best_size, squad.max_answer_length) == (128, 64, 20, 30)
    assert (squad.train_file, squad.dev_file) == ("train-v1.1.json", "dev-v1.1.json")


def test_paths_in_the_section_of_squad_are_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_DATA", str(tmp_path))
    path = write(tmp_path, {"extends": str(SQUAD), "squad": {"train_file": "$MY_DATA/train.json"}})
    squad = load("squad", path, "--squad.dev-file", "${MY_DATA}/dev.json").squad
    assert (squad.train_file, squad.dev_file) == (f"{tmp_path}/train.json", f"{tmp_path}/dev.json")
    assert load("squad", path).squad.dev_file == "dev-v1.1.json"


def test_a_question_must_leave_room_for_the_context() -> None:
    assert load("squad", SQUAD, "--squad.max-query-length", "380").max_seq_length == 384
    with pytest.raises(UserError, match=r"squad\.max_query_length = 381.*set squad\.max_query_length to 190"):
        load("squad", SQUAD, "--squad.max-query-length", "381")


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.benchmark == CLUE])
def test_every_clue_task_has_a_config_that_says_its_command(name: str) -> None:
    stem = name if name in ("csl", "wsc") else "clue_base"
    path = CONFIGS / "clue" / f"{stem}.json"
    config = load("classification", path, *(() if stem == name else ("--glue-task", name)))
    assert (config.glue_task, config.bert_model_name) == (name, "bert-base-chinese")
    assert (config.samples_per_update, config.num_epochs) == {"csl": (4, 3), "wsc": (8, 50)}.get(name, (32, 3))
    command = json.loads(path.read_text(encoding="utf-8"))["about"]["command"]
    assert f"--config configs/clue/{stem}.json" in command and (stem == name or name in command)
