"""benchmarks.yml: what runs on which machine, and which figures come out of a log."""

from __future__ import annotations

import sys

import pytest

from benchmarks.run import SYSTEMS, commands, entries, figures
from settings.loading import load_config
from tests import ROOT
from utilities.errors import UserError

ENTRY = {
    "cmd": "python3 -c {code}",
    "data": {
        "throughput": {"regexp": r"throughput: *(.*?) samples\/sec", "skip": 1},
        "first_step": {"regexp": r"after ([\d.]+) s", "reduction_type": "value"},
    },
    "output": [["samples/sec", "throughput"], ["first step", "first_step"]],
    "parameters": [["code"], ["'pass'"]],
}
LOG = (
    "first step after 2.5 s\nthroughput: 10.0 samples/sec\nthroughput: 1,100 samples/sec\nthroughput: 900 samples/sec\n"
)


def test_figures_as_the_published_runner_makes_them() -> None:
    assert figures(ENTRY, LOG) == {"samples/sec": 1000.0, "first step": 2.5}
    with pytest.raises(UserError, match="0 values of samples/sec"):
        figures(ENTRY, "")


def test_commands_are_filled_in_without_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert commands("one", ENTRY) == {"one_'pass'": [sys.executable, "-c", "pass"]}
    monkeypatch.delenv("DATASETS_DIR", raising=False)
    with pytest.raises(UserError, match="DATASETS_DIR"):
        commands("real", {**ENTRY, "cmd": "python3 x.py --data $DATASETS_DIR/128"})


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_command_has_a_valid_config(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATASETS_DIR", "/data")
    monkeypatch.chdir(ROOT)
    chosen = entries(None, system)
    assert chosen and not any("_conv" in name for name in chosen)
    for name, entry in chosen.items():
        for command in commands(name, entry).values():
            config = load_config("pretraining", command[2:]).config
            assert (ROOT / command[1]).is_file() and config.generated_dataset == (system != "ipu")
