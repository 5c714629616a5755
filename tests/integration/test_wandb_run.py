"""W&B shows a resumed run as one, without secrets; the sweep of the guide has valid flags."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
import yaml

from model.tasks import TASKS
from tests.integration.test_search import guide_block
from tests.integration.test_watched_runs import HUGGING_FACE, OWN_SECRET, check_no_secret
from tests.support.config_files import load_config
from tests.support.runs import logged, write_config, write_dataset
from tests.support.terminals import on_terminal
from training.run_folder import RunFolder

pytestmark = pytest.mark.slow

PROGRAMS = (b"interrupted_run", b"run_pretraining.py")


def test_an_interrupted_and_resumed_training_is_one_run_of_wandb(tmp_path: Path) -> None:
    """On a terminal without a login, W&B asks nothing, and gets nothing that it would collect by itself."""
    pytest.importorskip("wandb")
    from tests.support.wandb_files import offline_runs

    data = write_dataset(tmp_path / "data")
    config = write_config(
        tmp_path / "c.json", data, updates=20, wandb_tags=["x", HUGGING_FACE], wandb_project_name="my project",
        keep_last=1, report=True,
    )  # fmt: skip
    command = ["--config", str(config), "--output-dir", str(tmp_path / "runs"), "--name", "a", "--enable-wandb"]
    run, home = tmp_path / "runs" / "a", tmp_path / "home"
    home.mkdir()
    first = on_terminal(["-m", "tests.support.interrupted_run", "10", *command], home, MY_API_TOKEN=OWN_SECRET)
    assert first.status == 128 + signal.SIGTERM, first.shown
    second = on_terminal(["run_pretraining.py", *command, "--resume"], home, MY_API_TOKEN=OWN_SECRET)
    assert second.status == 0, second.shown
    for shown in (first.shown, second.shown):
        assert not any(question in shown for question in ("wandb login", "API key", "(1)"))
        (folder,) = re.findall(r"W&B offline; to upload the run: wandb sync (\S+)", shown)
        assert Path(folder).is_dir() and run in Path(folder).parents

    parts = offline_runs(run)
    assert len(parts) == 2 and {part.id for part in parts} == {RunFolder(run).identity}
    assert all(part.resumes for part in parts), "so that `wandb sync` appends"
    assert [part.exit_code for part in parts] == [1, 0], "interrupted, then complete"
    assert {(part.project, part.name, part.tags, part.host) for part in parts} == {
        ("my project", "a", ("x", "***"), "-")
    }
    assert parts[0].config["bert_config"]["hidden_size"] == 16 and "cpu" in parts[0].config["environment"]
    history = {**parts[0].history, **parts[1].history}
    periods = {line["step"]: line for line in logged(run) if "metrics" in line}
    assert history.keys() == periods.keys() and min(parts[1].history) == 12
    for step, line in periods.items():
        expected = {**line["metrics"], "samples": line["samples"], "learning_rate": line["learning_rate"]}
        assert {name: history[step][name] for name in expected} == pytest.approx(expected)
    for part in parts:  # of the checkpoints, only the one that is kept
        assert sorted(kind for kind, _ in part.artifacts.values()) == ["model", "report"]
        assert all(name.endswith(part.id) for name in part.artifacts) and part.system_metrics
    check_no_secret(tmp_path / "runs", first.shown + second.shown)
    files = [path for path in (run / "wandb").rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in files for program in PROGRAMS if program in path.read_bytes()]


def test_the_sweep_of_the_guide_has_valid_flags() -> None:
    sweep = yaml.safe_load(guide_block("yaml"))
    task = {entry.program: name for name, entry in TASKS.items()}[sweep["program"]]
    before, script, *arguments = sweep["command"][1:]
    assert (before, script, arguments.pop()) == ("python", "${program}", "${args}")
    for name, values in sweep["parameters"].items():
        for value in values.get("values") or [values["min"], values["max"]]:
            loaded = load_config(task, [*arguments, f"--{name}={value}"])
            assert loaded.config.enable_wandb and loaded.config.evaluation.every == "epoch"
    assert sweep["metric"]["name"] == "evaluation/accuracy"
