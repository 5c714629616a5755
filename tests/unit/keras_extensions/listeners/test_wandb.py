"""W&B with its real client, offline: no login, no questions, and one run across a resume."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_extensions.listeners.reporting import Period
from keras_extensions.listeners.wandb_run import ID_FILE, WandbRun, run_id
from tests import ROOT
from tests.support.terminals import on_terminal
from utilities.errors import UserError

pytest.importorskip("wandb")
from tests.support.wandb_files import OfflineRun, offline_runs

SESSION = ROOT / "tests" / "support" / "wandb_session.py"


@pytest.fixture(scope="module")
def tracked(tmp_path_factory) -> tuple[Path, str]:
    """A folder with a run in two parts, tracked in a process on a terminal, without a login."""
    folder = tmp_path_factory.mktemp("run")
    ended = on_terminal([str(SESSION), str(folder)], tmp_path_factory.mktemp("home"), SOME_API_KEY="0123456789secret")
    assert ended.status == 0, ended.shown
    return folder, ended.shown


@pytest.fixture(scope="module")
def parts(tracked) -> list[OfflineRun]:
    return offline_runs(tracked[0])


def test_offline_run_asks_nothing_and_shows_the_upload_command(tracked):
    folder, shown = tracked
    assert "wandb login" not in shown and "API key" not in shown and "(1)" not in shown
    assert shown.count("W&B offline; to upload the run: wandb sync ") == 2
    folders = [line.split("wandb sync ")[1].strip() for line in shown.splitlines() if "wandb sync" in line]
    assert all(Path(path).is_dir() and folder in Path(path).parents for path in folders)


def test_resumed_run_is_one_run(tracked, parts):
    assert len(parts) == 2
    assert {part.id for part in parts} == {(tracked[0] / ID_FILE).read_text().strip()}
    assert [sorted(part.history) for part in parts] == [[1, 2, 3], [4, 5, 6]]
    assert all(part.resumes for part in parts), "so that `wandb sync` appends"


def test_metrics_config_tags_and_names_are_recorded(parts):
    first = parts[0]
    assert (first.project, first.name, first.tags) == ("my project", "my run", ("a", "b"))
    assert first.config["seed"] == 7 and first.config["optimizer_opts"] == {"name": "LAMB"}
    logged = first.history[2]
    expected = {"loss": 7.0, "mlm_loss": 6.0, "throughput": 16.0, "samples": 16, "learning_rate": 1e-3}
    assert {name: logged[name] for name in expected} == expected
    assert [part.summary["f1"] for part in parts] == [80.0, 83.0]
    assert all(part.system_metrics >= 1 for part in parts)


def test_report_and_kept_checkpoints_are_artifacts(parts):
    """A checkpoint that was removed by rotation before the end is not an artifact."""
    for part in parts:
        kinds = sorted((kind, files) for kind, files in part.artifacts.values())
        assert kinds == [("model", ("checkpoint.json", "weights.index")), ("report", ("report.html",))]
        assert all(name.endswith(part.id) for name in part.artifacts)
    assert [part.exit_code for part in parts] == [0, 0]


def test_no_environment_no_command_line_and_no_host_is_recorded(tracked, parts):
    """W&B would collect these by itself."""
    assert {part.host for part in parts} == {"-"}
    content = b"".join(path.read_bytes() for path in tracked[0].rglob("*") if path.is_file() and not path.is_symlink())
    for private in (b"0123456789secret", SESSION.name.encode(), str(SESSION).encode()):
        assert private not in content, private


def test_missing_package_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"enable_wandb .* pip install wandb"):
        WandbRun(tmp_path, "n", {})


@pytest.mark.parametrize("content", [b"", b"../x", b"\xff", b"a b", b"x" * 70])
def test_invalid_run_id_is_replaced(tmp_path, content):
    path = tmp_path / ID_FILE
    path.write_bytes(content)
    new = run_id(path)
    assert new != content.decode("latin-1") and run_id(path) == new


class FakeClient:
    """The parts of the client that depend on a server."""

    __version__ = "0"
    Error = type("Error", (Exception,), {})
    errors = SimpleNamespace(CommError=type("CommError", (Error,), {}))

    def __init__(self, login=True, answers=True, works=True):
        self.login = lambda **options: login
        self.modes, self.answers, self.works, self.logged = [], answers, works, []
        self.setup = self.Settings = lambda **settings: settings

    def init(self, mode, **arguments):
        self.modes.append(mode)
        if mode is None and not self.answers:
            raise self.errors.CommError("no\nanswer")
        return SimpleNamespace(dir="w/files", url="https://w/1", log=self.log, finish=lambda **options: None)

    def log(self, values, step):
        if not self.works:
            raise BrokenPipeError("the service is gone")
        self.logged.append(step)


def fake_run(monkeypatch, tmp_path, **behaviour) -> tuple[FakeClient, WandbRun]:
    client = FakeClient(**behaviour)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setitem(sys.modules, "wandb", client)
    return client, WandbRun(tmp_path, "n", {})


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
    assert client.modes == [None, "offline"] and client.logged == [1]
    assert "does not answer (no answer)" in caplog.text


def test_training_continues_without_tracking(monkeypatch, tmp_path, caplog):
    _, run = fake_run(monkeypatch, tmp_path, works=False)
    run.begin(0, 6)
    for _ in range(3):
        run.period(PERIOD)
    run.close(True)
    assert caplog.text.count("training continues") == 1


def test_refused_settings_are_one_line(monkeypatch, tmp_path):
    client, run = fake_run(monkeypatch, tmp_path)
    client.init = lambda **arguments: (_ for _ in ()).throw(client.Error("no such\nentity"))
    with pytest.raises(UserError, match="enable_wandb: W&B 0 refuses \\(no such entity\\); correct"):
        run.begin(0, 6)
