"""The guide on searches: its lines are run, and continue a stopped search."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from model.tasks import PRETRAINING
from tests import ROOT
from tests.support.fine_tuning_runs import sentence
from tests.support.runs import read_json, write_csv
from tests.support.saved_checkpoints import OPTIONS, save

pytestmark = pytest.mark.slow


def guide_block(kind: str) -> str:
    guide = (ROOT / "guides" / "search.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"^```{kind}\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    return str(block)


def test_the_lines_of_the_guide_search_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(0)
    rows = [(sentence(chance, word), word) for word in chance.choices(["good", "bad"], k=60)]
    write_csv(tmp_path / "reviews.csv", ["review", "sentiment"], rows)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    save(PRETRAINING, OPTIONS["as published"], tmp_path / "runs" / "half128" / "checkpoints", pieces=120)
    monkeypatch.chdir(tmp_path)
    without_xla = '"execution": {"platform": "software", "xla": False}, '  # compiling would take most of the time
    code = guide_block("python").replace("fixed = {", f"fixed = {{{without_xla}")
    for trials in (1, 2):
        names: dict[str, Any] = {}
        exec(compile(code.replace("n_trials=20", "n_trials=1"), "guide", "exec"), names)
        assert len(names["study"].trials) == trials
    for trial in names["study"].trials:
        run = tmp_path / "runs" / "search" / f"trial-{trial.number}"
        config = read_json(run / "resolved_config.json")["config"]
        assert trial.value == read_json(run / "scores.json")["accuracy"]
        assert trial.params["num_epochs"] == config["num_epochs"]
        assert trial.params["rate"] == config["optimizer_opts"]["learning_rate"]["max_learning_rate"]
        assert trial.params["packs"] == config["packing"]["max_sequences_per_pack"]
