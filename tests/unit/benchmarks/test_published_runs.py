"""Every command of benchmarks.yml names a script and has a valid config."""

from __future__ import annotations

import os
import shlex

import pytest
import yaml

from tests import ROOT
from tests.support.config_files import load_config


def test_each_command_has_a_valid_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATASETS_DIR", "/data")
    monkeypatch.chdir(ROOT)
    content = yaml.safe_load((ROOT / "benchmarks.yml").read_text(encoding="utf-8"))
    entries = [entry for entry in content.values() if "cmd" in entry]
    assert len(entries) == 5
    for entry in entries:
        header, *rows = entry.get("parameters") or [[], []]
        for row in rows:
            line = entry["cmd"].format(**dict(zip(header, row)))
            _, script, *arguments = shlex.split(os.path.expandvars(line))
            assert (ROOT / script).is_file()
            load_config("pretraining", arguments)
