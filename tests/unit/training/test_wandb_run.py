"""W&B without its package, its login or its server; test_watched_runs.py runs it."""

from __future__ import annotations

import dataclasses
import logging
import sys
from types import SimpleNamespace

import pytest

from keras_extensions.listeners.reporting import Period
from training.wandb_run import WandbRun
from utilities.errors import UserError


def test_missing_package_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"enable_wandb .* pip install wandb"):
        WandbRun(tmp_path, "a", {"name": "n"})


def test_scores_are_in_the_summary_of_the_real_client(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    from tests.support.wandb_files import offline_runs

    monkeypatch.setenv("WANDB_MODE", "offline")
    run = WandbRun(tmp_path, "a", {"name": "n"})
    run.begin(0, 6)
    run.period(PERIOD)
    run.scored({"f1": 80.0})
    run.close(True)
    (recorded,) = offline_runs(tmp_path)
    assert recorded.summary["final/f1"] == 80.0


class FakeClient:
    """The parts of the client that depend on a server."""

    __version__ = "0"
    Error = type("Error", (Exception,), {})
    errors = SimpleNamespace(CommError=type("CommError", (Error,), {}))

    def __init__(self, login=True, answers=True, works=True):
        self.login = lambda **options: login
        self.modes, self.answers, self.works, self.logged, self.summary = [], answers, works, [], {}
        self.setup = self.Settings = lambda **settings: settings

    def init(self, mode, **arguments):
        self.modes.append(mode)
        if mode is None and not self.answers:
            raise self.errors.CommError("no\nanswer")
        return SimpleNamespace(
            dir="w/files", url="https://w/1", log=self.log, summary=self.summary, finish=lambda **options: None
        )

    def log(self, values, step):
        if not self.works:
            raise BrokenPipeError("the service is gone")
        self.logged.append(step)


def fake_run(monkeypatch, tmp_path, **behaviour) -> tuple[FakeClient, WandbRun]:
    client = FakeClient(**behaviour)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setitem(sys.modules, "wandb", client)
    return client, WandbRun(tmp_path, "a", {"name": "n"})


PERIOD = Period(1, 6, 1, 8, 1.0, 8.0, False, None, None, {"loss": 1.0})


@pytest.mark.parametrize("login, variable, mode", [(True, "", None), (False, "", "offline"), (False, "disabled", None)])
def test_run_is_online_with_a_login_only(monkeypatch, tmp_path, login, variable, mode):
    """A mode that WANDB_MODE sets is left to the client."""
    client, run = fake_run(monkeypatch, tmp_path, login=login)
    if variable:
        monkeypatch.setenv("WANDB_MODE", variable)
    run.begin(0, 6)
    assert client.modes == [mode]


def test_server_without_an_answer_is_a_warning(monkeypatch, tmp_path, caplog):
    client, run = fake_run(monkeypatch, tmp_path, answers=False)
    run.begin(0, 6)
    run.period(PERIOD)
    run.scored({"f1": 80.0})
    assert client.modes == [None, "offline"] and (client.logged, client.summary) == ([1], {"final/f1": 80.0})
    assert "does not answer (no answer)" in caplog.text


def test_training_continues_without_tracking(monkeypatch, tmp_path, caplog):
    _, run = fake_run(monkeypatch, tmp_path, works=False)
    run.begin(0, 6)
    for _ in range(3):
        run.period(PERIOD)
    run.close(True)
    assert caplog.text.count("training continues") == 1


def test_values_that_are_dropped_after_a_rewind_are_named(monkeypatch, tmp_path, caplog):
    """W&B has no way back to an earlier step."""
    _, run = fake_run(monkeypatch, tmp_path)
    for begin, end in ((0, 4), (1, 6)):
        run.begin(begin, 6)
        for step in range(begin + 1, end + 1):
            run.period(dataclasses.replace(PERIOD, step=step))
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [
        "W&B keeps the first values of steps 2 to 3, which are trained again; metrics.jsonl has the last"
    ]


def test_refused_settings_are_one_line(monkeypatch, tmp_path):
    client, run = fake_run(monkeypatch, tmp_path)
    client.init = lambda **arguments: (_ for _ in ()).throw(client.Error("no such\nentity"))
    with pytest.raises(UserError, match="enable_wandb: W&B 0 refuses \\(no such entity\\); correct"):
        run.begin(0, 6)
