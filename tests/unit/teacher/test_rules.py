"""Refusals of the section for distillation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.config_files import FINE_TUNING, assert_config_refused, changed

TEACHER, TEMPERATURE = "distillation/teacher", "distillation/temperature"
SST2 = {"glue_task": "sst2"}
TAUGHT = {**SST2, TEACHER: "t"}
BROKEN = [
    ("squad", {TEACHER: "t"}, ("distillation.teacher", "squad learns from no teacher")),
    ("classification", {**SST2, "distillation/unlabelled": "a.csv"}, ("unlabelled", "set distillation.teacher")),
    ("classification", {**SST2, TEMPERATURE: 3}, ("temperature", "there is no teacher")),
    ("classification", {**TAUGHT, "distillation/weight": 1.5}, ("distillation.weight", "from 0 to 1")),
    ("classification", {**TAUGHT, "generated_dataset": True}, ("distillation.teacher", "random data")),
    (
        "classification",
        {**TAUGHT, "execution/platform": "graphcore"},
        ("distillation.teacher", "on stock TensorFlow only"),
    ),
    ("classification", {**TAUGHT, "glue_task": "stsb", TEMPERATURE: 3}, ("temperature", "a regression has no prob")),
]


@pytest.mark.parametrize(("task", "change", "words"), BROKEN, ids=str)
def test_broken_rules(
    task: str, change: dict[str, Any], words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert_config_refused(task, changed(FINE_TUNING, change), words, tmp_path, capsys)
