"""The section ``squad`` of a config."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from settings.loading import LoadedConfig, load_config
from tests import ROOT
from utilities.errors import UserError

CONFIGS = ROOT / "configs" / "squad"


def load(name: str, *flags: str) -> LoadedConfig:
    return load_config("squad", ["--config", str(CONFIGS / f"{name}.json"), *flags])


def test_published_defaults() -> None:
    squad = load("squad_base").config.squad
    assert (squad.doc_stride, squad.max_query_length, squad.n_best_size, squad.max_answer_length) == (128, 64, 20, 30)
    assert (squad.train_file, squad.dev_file) == ("train-v1.1.json", "dev-v1.1.json")


def test_paths_in_the_section_are_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_DATA", str(tmp_path))
    path = tmp_path / "c.json"
    values = {"extends": str(CONFIGS / "squad_base.json"), "squad": {"train_file": "$MY_DATA/train.json"}}
    path.write_text(json.dumps(values), encoding="utf-8")
    loaded = load_config("squad", ["--config", str(path), "--squad.cache-dir", "${MY_DATA}/cache"])
    assert loaded.config.squad.train_file == f"{tmp_path}/train.json"
    assert loaded.config.squad.cache_dir == f"{tmp_path}/cache"
    assert loaded.config.squad.dev_file == "dev-v1.1.json"
    with pytest.raises(UserError, match=r"squad\.dev_file.*NO_SUCH is not set"):
        load_config("squad", ["--config", str(path), "--squad.dev-file", "$NO_SUCH/dev.json"])


@pytest.mark.parametrize(("longest", "allowed"), [(380, True), (381, False)])
def test_a_question_must_leave_room_for_the_context(longest: int, allowed: bool) -> None:
    flags = ["--squad.max-query-length", str(longest)]
    if allowed:
        assert load("squad_base", *flags).config.max_seq_length == 384
    else:
        with pytest.raises(UserError, match=r"squad\.max_query_length = 381.*set squad\.max_query_length to 190"):
            load("squad_base", *flags)
