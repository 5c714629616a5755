"""``python -m tasks.search``: trials are runs of the training command, also after a kill; pruning, failures, refusals.

Most tests vary a short program instead of a training command, which has the same name, flags and files.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import yaml
from optuna.trial import TrialState, create_trial

from model.tasks import TASKS
from settings.loading import load_config
from tasks.search import study, trials
from tasks.search.__main__ import main
from tasks.search.space import check_space, read_space
from tests import ROOT
from tests.support.command_errors import assert_refused
from tests.support.fine_tuning_runs import PIECES, write_config, write_pieces, write_sst2
from tests.support.runs import evaluations, events, metrics, read_json, run_command, state, write_json

pytestmark = pytest.mark.slow

# Trains for num_epochs epochs; its accuracy is one millionth of the seed. A run whose micro batch is 3 fails, one of 4
# is killed, one of 5 stops to learn after an evaluation, those of 6 and 7 have no number as their score.
PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path

flags = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
folder = Path(flags["output-dir"]) / flags["name"]
with open(Path(sys.argv[0]).parent / "started", "a") as started:
    started.write(f"{os.getpid()} {flags['name']}\\n")
if flags.get("global-batch.micro-batch-size") == "3":
    print("error: dataset_dir: there is no such folder", file=sys.stderr)
    sys.exit(2)
if flags.get("global-batch.micro-batch-size") == "4":
    os.kill(os.getpid(), signal.SIGKILL)
folder.mkdir(exist_ok=True)
(folder / "resolved_config.json").write_text("{}")
epochs, scores = int(flags["num-epochs"]), {"accuracy": int(flags["seed"]) / 1e6}
scores["accuracy"] = {"6": None, "7": "good"}.get(flags.get("global-batch.micro-batch-size"), scores["accuracy"])
with open(folder / "metrics.jsonl", "w") as metrics:
    for epoch in range(1, epochs + 1):
        print(json.dumps({"step": epoch, "total_steps": epochs, "evaluation": scores}), file=metrics, flush=True)
        if flags.get("global-batch.micro-batch-size") == "5" and epochs > 1:
            time.sleep(600)
(folder / "scores.json").write_text(json.dumps(scores))
(folder / "history.jsonl").write_text(json.dumps({"event": "end"}) + "\\n")
"""

SPACE = {"num_epochs": {"low": 1, "high": 3}, "seed": {"low": 1, "high": 1_000_000}}
NAME = "accuracy"


class Files:
    """A training command, its config, and a folder for searches."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = write_config(root, "tiny", glue_task="sst2", num_epochs=1)
        self.program = root / "run_seq_classification.py"
        self.program.write_text(PROGRAM, encoding="utf-8")

    def arguments(self, output: str, space: dict[str, Any], trials: int, *options: str) -> list[str]:
        path = write_json(self.root / f"{output.replace('/', '-')}.json", space)
        own = ["--space", str(path), "--trials", str(trials), "--output", str(self.root / output), *options]
        return [*own, "--", str(self.program), "--config", str(self.config)]

    def search(self, output: str, space: dict[str, Any], trials: int, *options: str) -> int:
        return main(self.arguments(output, space, trials, *options))

    def study(self, output: str) -> optuna.Study:
        return open_study(self.root / output)

    def started(self) -> list[str]:
        """Return the names of the trials whose program was started."""
        path = self.root / "started"
        return [line.split()[1] for line in path.read_text().splitlines()] if path.exists() else []

    def process(self) -> int:
        """Return the number of the process that was started last."""
        return int((self.root / "started").read_text().splitlines()[-1].split()[0])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(study, "HEARTBEAT_SECONDS", 1)
    monkeypatch.setattr(study, "GRACE_SECONDS", 4)
    return Files(tmp_path)


def open_study(folder: Path) -> optuna.Study:
    return optuna.load_study(study_name=folder.name, storage=f"sqlite:///{folder / 'study.db'}")


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition is not met"
        time.sleep(0.1)


def test_the_best_trial_is_found_and_its_config_kept(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert files.search("found", SPACE, 4) == 0
    trials = files.study("found").trials
    best = max(trials, key=lambda trial: trial.params["seed"])
    assert [trial.value for trial in trials] == [trial.params["seed"] / 1e6 for trial in trials]
    assert [list(trial.intermediate_values) for trial in trials] == [
        list(range(trial.params["num_epochs"])) for trial in trials
    ]
    name = f"trial-{best.number:04}"
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  trial-")]
    assert len(rows) == 4 and rows[0] == name
    kept = load_config("classification", ["--config", str(files.root / "found" / "best.json")]).config
    flags = ["--num-epochs", str(best.params["num_epochs"]), "--seed", str(best.params["seed"]), "--name", "best"]
    own = load_config("classification", ["--config", str(files.config), *flags]).config
    assert kept.model_dump(exclude={"about"}) == own.model_dump(exclude={"about"})
    assert files.search("found", SPACE, 4) == 0 and len(files.started()) == 4  # nothing is repeated
    assert files.search("found", SPACE, 5) == 0 and len(files.started()) == 5


@pytest.mark.parametrize("baseline, is_better", [(0.0, True), (1.0, False)])
def test_the_best_score_stands_beside_the_baseline(
    files: Files, capsys: pytest.CaptureFixture[str], baseline: float, is_better: bool
) -> None:
    program = PROGRAM + f'(folder / "baseline.json").write_text(json.dumps({{"accuracy": {baseline}}}))\n'
    files.program.write_text(program, encoding="utf-8")
    assert files.search("baseline", SPACE, 2) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("baseline: ")]
    assert f"accuracy {baseline:g} " in line and ("no trial is better" in line) is not is_better


def test_the_trial_of_a_killed_search_is_repeated(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    space = {"seed": SPACE["seed"], "num_epochs": [2], "global_batch.micro_batch_size": [5, 8]}
    # The first trial of these with a micro batch of 5 waits until it is killed, and so does its search.
    line = files.arguments("killed", space, 4, "--no-pruning", "--metric", NAME)
    killed = subprocess.Popen([sys.executable, "-m", "tasks.search", *line], cwd=ROOT, stdout=subprocess.DEVNULL)
    sleeping = lambda: list((files.root / "killed").glob("trial-*/metrics.jsonl"))  # noqa: E731
    wait_for(lambda: any(not (path.parent / "scores.json").exists() for path in sleeping()))
    before = len(files.started())
    killed.kill()
    killed.wait()
    os.kill(files.process(), signal.SIGKILL)
    files.program.write_text(PROGRAM.replace('== "5"', '== "none"'), encoding="utf-8")
    assert main(line) == 0
    assert capsys.readouterr().out.startswith("waiting")  # for the heartbeat that does not come
    trials = files.study("killed").trials
    interrupted, repeated = trials[before - 1 : before + 1]
    assert (interrupted.state, repeated.state) == (TrialState.FAIL, TrialState.COMPLETE)
    assert repeated.params == interrupted.params and len(repeated.intermediate_values) == 2
    assert [trial.state for trial in trials].count(TrialState.COMPLETE) == 4 and len(trials) == 5
    names = [f"trial-{number:04}" for number in range(5)]
    assert files.started() == [*names[:before], names[before - 1], *names[before + 1 :]]  # in the same folder


def test_a_long_trial_says_how_far_it_is(
    files: Files, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "SECONDS_BETWEEN_LINES", 0.5)
    files.program.write_text(
        PROGRAM.replace("flush=True)\n", "flush=True)\n        time.sleep(1.5)\n"), encoding="utf-8"
    )
    assert files.search("long", {"num_epochs": [2], "seed": [250_000]}, 1) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "trial-0000: step 1 of 2, accuracy 0.2500" in lines


def test_a_trial_below_the_median_is_pruned(files: Files) -> None:
    space = {"num_epochs": [2], "seed": [7], "global_batch.micro_batch_size": [5]}
    folder = files.root / "pruned"
    folder.mkdir()
    study = optuna.create_study(study_name="pruned", storage=f"sqlite:///{folder / 'study.db'}", direction="maximize")
    for _ in range(5):  # the pruner's own minimum
        study.add_trial(create_trial(value=0.9, intermediate_values={0: 0.9, 1: 0.9}))
    assert files.search("pruned", space, 6) == 0  # it would sleep for minutes
    trial = files.study("pruned").trials[-1]
    assert (trial.state, trial.value, trial.intermediate_values) == (TrialState.PRUNED, 7e-6, {0: 7e-6})
    assert not (folder / "trial-0005" / "scores.json").exists()
    assert study.best_trial.number < 5


def test_failed_trials_do_not_end_the_search(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    space = {"seed": SPACE["seed"], "num_epochs": [1], "global_batch.micro_batch_size": [3, 4, 8]}
    while files.search("some", space, 3):
        assert "3 trials in a row" in capsys.readouterr().err
    states = [trial.state for trial in files.study("some").trials]
    assert states.count(TrialState.COMPLETE) == 3 and TrialState.FAIL in states
    assert files.search("none", {**space, "global_batch.micro_batch_size": [3]}, 3) == 2
    assert "dataset_dir: there is no such folder" in capsys.readouterr().err
    assert [trial.state for trial in files.study("none").trials] == [TrialState.FAIL] * 3


@pytest.mark.parametrize("size", [6, 7])
def test_a_score_that_is_no_number_fails_the_trial(size: int, files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert files.search("none", {**SPACE, "global_batch.micro_batch_size": [size]}, 1) == 2
    assert "accuracy is" in capsys.readouterr().err
    assert {trial.state for trial in files.study("none").trials} == {TrialState.FAIL}


def test_a_renamed_folder_goes_on(files: Files) -> None:
    assert files.search("one", SPACE, 1) == 0
    (files.root / "one").rename(files.root / "two")
    assert files.search("two", SPACE, 2) == 0
    assert files.started() == ["trial-0000", "trial-0001"]


def test_machines_share_a_study(files: Files) -> None:
    url = f"sqlite:///{files.root / 'shared.db'}"
    assert files.search("one/shared", SPACE, 2, "--storage", url) == 0
    study = optuna.load_study(study_name="shared", storage=url)
    study.ask()  # by another machine, which has not ended it yet
    assert files.search("two/shared", SPACE, 4, "--storage", url) == 0
    assert files.started() == ["trial-0000", "trial-0001", "trial-0003"]
    assert len({trial.params["seed"] for trial in study.trials if trial.params}) == 3


@pytest.mark.parametrize(
    "flag, value, name",
    [("--seed", "5", "seed"), ("--global-batch.micro-batch-size", "4", "global_batch")],
)
def test_another_config_is_not_the_same_search(
    files: Files, capsys: pytest.CaptureFixture[str], flag: str, value: str, name: str
) -> None:
    space = {"num_epochs": [1], "optimizer_opts.weight_decay_rate": [0.1]}
    files.program.write_text(PROGRAM.replace('flags["seed"]', "7"), encoding="utf-8")
    assert files.search("search", space, 1) == 0
    assert_refused(main([*files.arguments("search", space, 2), flag, value]), capsys.readouterr(), name)
    assert_refused(files.search("search", {**space, "num_epochs": [1, 2]}, 2), capsys.readouterr(), "--space")
    assert len(files.started()) == 1


def test_trials_of_another_search_are_not_taken_for_own_ones(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert files.search("search", SPACE, 1) == 0
    (files.root / "search" / "study.db").unlink()
    assert files.search("search", SPACE, 1) == 2
    assert "trial-0000" in capsys.readouterr().err


RATE = "optimizer_opts.learning_rate.max_learning_rate"


@pytest.mark.parametrize(
    "space, name",
    [
        ({"lr": [1e-3]}, RATE),
        ({"num_epoch": [1]}, "num_epochs"),
        ({"num_epochs": [1, 0]}, "num_epochs"),
        ({"num_epochs": [1, "2"]}, "num_epochs"),
        ({"num_epochs": []}, "num_epochs"),
        ({"num_epochs": 3}, "num_epochs"),
        ({"num_epochs": {"low": 0, "high": 3}}, "num_epochs"),
        ({"num_epochs": {"low": 3, "high": 1}}, "num_epochs"),
        ({"num_epochs": {"low": 1, "high": 2.5}}, "num_epochs"),
        ({"num_epochs": {"low": 1, "high": 3, "step": 0}}, "num_epochs"),
        ({"num_epochs": {"low": 1, "high": 3, "by": 2}}, "num_epochs"),
        ({"num_epochs": {"low": 1}}, "num_epochs"),
        ({"num_epochs": [1], RATE: {"low": -1.0, "high": 1.0}}, RATE),
        ({RATE: {"low": 0, "high": 1.0, "log": True}}, RATE),
        ({RATE: {"low": 1e-5, "high": 1e-4, "log": "yes"}}, RATE),
        ({RATE: {"low": 1e-5, "high": 1e400}}, "Infinity"),
        ({"optimizer_opts.name": {"low": 1, "high": 2}}, "optimizer_opts.name"),
        ({"optimizer_opts.name": ["AdamW", "Adamm"]}, "optimizer_opts.name"),
        ({"max_seq_length": [16, 64], "num_epochs": [1]}, "max_seq_length"),  # the model has 32 positions
        ({"name": ["a", "b"]}, "name"),
        ([1, 2], "--space"),
        ({}, "--space"),
    ],
)
def test_a_wrong_space_is_refused_before_anything_runs(
    files: Files, capsys: pytest.CaptureFixture[str], space: Any, name: str
) -> None:
    assert_refused(files.search("search", space, 2), capsys.readouterr(), name)
    assert not (files.root / "search").exists()


@pytest.mark.parametrize(
    "change, name",
    [
        (lambda line: [*line, "--seeds", "1", "2"], "seeds"),
        (lambda line: [*line, "--num-epoch", "3"], "--num-epoch"),
        (lambda line: [word.replace("run_seq_classification", "train") for word in line], "run_squad.py"),
        (lambda line: line[: line.index("--")], "run_squad.py"),
        (lambda line: ["--storage", "nothing://here", *line], "--storage"),
        (lambda line: ["--storage", "postgresql://nobody@localhost:1/nothing", *line], "--storage"),
        (lambda line: ["--trials", "0", *line[:2], *line[4:]], "--trials"),
    ],
)
def test_a_wrong_command_is_refused(
    files: Files, capsys: pytest.CaptureFixture[str], change: Callable[[list[str]], list[str]], name: str
) -> None:
    assert_refused(main(change(files.arguments("search", SPACE, 2))), capsys.readouterr(), name)
    assert not files.started()


def test_an_unknown_score_is_refused_before_anything_runs(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    message = f"--metric f1: the task has no such score; name one of {NAME}"
    assert_refused(files.search("search", SPACE, 2, "--metric", "f1"), capsys.readouterr(), message)
    assert not files.started()


def test_optuna_is_asked_for_in_one_line(
    files: Files, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tasks.search.study", None)  # its import fails
    assert_refused(files.search("search", SPACE, 2), capsys.readouterr(), "pip install --upgrade optuna")


def test_a_killed_trial_is_resumed_and_scores_as_the_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "GRACE_SECONDS", 11)  # the trial was already seen to end; heartbeats come every 10 s
    write_pieces(tmp_path / "vocab.txt", PIECES)
    write_sst2(tmp_path)
    config = write_config(tmp_path, "sst2", glue_task="sst2", num_epochs=1, report=False, evaluation={"every": 100})
    space = write_json(tmp_path / "space.json", {"num_epochs": [12], RATE: {"low": 1e-3, "high": 1e-2, "log": True}})
    folder = tmp_path / "search"
    run = folder / "trial-0000"
    options = ["--space", str(space), "--trials", "1", "--output", str(folder), "--metric", NAME]
    line = [*options, "--", str(ROOT / "run_seq_classification.py"), "--config", str(config)]
    killed = subprocess.Popen([sys.executable, "-m", "tasks.search", *line], cwd=ROOT, stdout=subprocess.DEVNULL)
    wait_for(lambda: (run / "metrics.jsonl").exists() and metrics(run))
    killed.kill()
    killed.wait()
    wait_for(lambda: events(run)[-1:] == ["interrupt"])
    assert main(line) == 0
    assert events(run) == ["begin", "interrupt", "resume", "end"]
    killed_trial, trial = open_study(folder).trials
    assert killed_trial.state == TrialState.FAIL
    rate = repr(trial.params[RATE])
    flags = ["--num-epochs", "12", "--optimizer-opts.learning-rate.max-learning-rate", rate]
    run_command("classification", config, *flags, "--output-dir", str(tmp_path / "runs"), status=0)
    same = tmp_path / "runs" / "sst2"
    resumed, whole = state(run), state(same)
    assert resumed.keys() == whole.keys()
    for name in whole:
        np.testing.assert_array_equal(resumed[name], whole[name], err_msg=name)
    assert trial.value == read_json(run / "scores.json")[NAME] == read_json(same / "scores.json")[NAME] > 0.9
    assert evaluations(run) == evaluations(same)
    assert list(trial.intermediate_values.values()) == [scores[NAME] for _, scores in evaluations(same)]


def guide_blocks(language: str) -> list[str]:
    text = (ROOT / "guides" / "search.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_space_of_the_guide_is_valid(tmp_path: Path) -> None:
    (text,) = guide_blocks("json")
    path = tmp_path / "space.json"
    path.write_text(text, encoding="utf-8")
    recipe = ["--config", "configs/glue/glue_base.json", "configs/systems/glue_cpu.json", "--glue-task", "sst2"]
    check_space(read_space(path), "space.json", "classification", [*recipe, "--dataset-dir", "glue_data"])


def test_the_sweep_of_the_guide_has_valid_flags() -> None:
    (text,) = guide_blocks("yaml")
    sweep = yaml.safe_load(text)
    task = {facts.program: name for name, facts in TASKS.items()}[sweep["program"]]
    before, script, *arguments = sweep["command"][1:]
    assert (before, script, arguments.pop()) == ("python", "${program}", "${args}")
    for name, values in sweep["parameters"].items():
        for value in values.get("values") or [values["min"], values["max"]]:
            loaded = load_config(task, [*arguments, f"--{name}={value}"])
            assert loaded.config.enable_wandb and loaded.config.evaluation.every == "epoch"
    assert sweep["metric"]["name"] == f"evaluation/{NAME}"


def test_settings_are_json(files: Files) -> None:
    """What a study records of a search can be read without this project."""
    assert files.search("search", {"num_epochs": [1], "seed": [3]}, 1) == 0
    settings = files.study("search").user_attrs["settings"]
    assert json.loads(json.dumps(settings)) == settings and settings["metric"] == NAME
