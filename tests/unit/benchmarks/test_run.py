"""benchmarks.yml: what runs on which machine, and which figures come out of a log."""

from __future__ import annotations

import pytest

from benchmarks.run import SYSTEMS, commands, entries, figures
from settings.loading import load_config
from tests import ROOT

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
    assert figures(ENTRY, LOG) == [1000.0, 2.5]


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_command_has_a_valid_config(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATASETS_DIR", "/data")
    monkeypatch.chdir(ROOT)
    chosen = entries(system)
    assert chosen
    for name, entry in chosen.items():
        for script, *arguments in commands(name, entry).values():
            config = load_config("pretraining", arguments).config
            assert (ROOT / script).is_file() and config.generated_dataset == (system != "ipu")
