"""A killed preparation resumes where it stopped, and always gives the same bytes."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from data_utils.demo_corpus import write_demo_corpus
from data_utils.text import __main__ as whole
from data_utils.text import examples, sentences, sources
from tests import ROOT
from tests.integration.test_preprocessing import run
from tests.support.runs import content, files_up_to

pytestmark = pytest.mark.slow

PATIENCE = 300  # timeout in seconds, for a busy machine
OPTIONS = [
    *("--max-seq-length", 32, "--max-predictions", 5, "--vocab-size", 2000, "--duplicate-factor", 2),
    *("--unit-megabytes", 0.02),
]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    write_demo_corpus(path, words=30_000, packages=())
    return path


def use_small_shards(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sources, "SMALLEST_SHARD", 4000)
    patch.setattr(sources, "LARGEST_SHARD", 4000)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_shards(monkeypatch)


@pytest.fixture(scope="module")
def data_set(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("set") / "out"
    with pytest.MonkeyPatch.context() as patch:
        use_small_shards(patch)
        assert run("--text", text, "--output", folder, "--workers", 1, *OPTIONS) == 0
    return folder


class Stopped(BaseException):
    """Ends a run at once, like a kill, because nothing catches it."""


def stopping(function: Callable, after: int) -> Callable:
    """Return a function that calls ``function``, and raises ``Stopped`` after this number of calls."""
    calls = 0

    @functools.wraps(function)
    def counted(*arguments: object, **keywords: object) -> object:
        nonlocal calls
        calls += 1
        if calls > after:
            raise Stopped
        return function(*arguments, **keywords)

    return counted


@contextlib.contextmanager
def stopped_after(calls: int, module: object, name: str) -> Iterator[None]:
    """Within the block, a command is stopped after this number of calls of a function."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(module, name, stopping(getattr(module, name), calls))
        yield


@pytest.mark.parametrize(("module", "name"), [(whole, "train_vocabulary"), (examples, "write_record_file")])
def test_a_run_that_is_stopped_after_its_sentences_resumes(
    text: Path, data_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, name: str
) -> None:
    arguments = ("--text", text, "--output", tmp_path / "out", "--workers", 1, *OPTIONS)
    real = getattr(module, name)
    stops = 0
    for after in (0, 3):
        monkeypatch.setattr(module, name, stopping(real, after))
        try:
            assert run(*arguments) == 0
            break
        except Stopped:
            stops += 1
    else:
        monkeypatch.setattr(module, name, real)
        assert run(*arguments) == 0
    assert stops
    assert content(tmp_path / "out") == content(data_set)


def test_a_full_disk_is_one_line_and_the_command_resumes(
    text: Path, data_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--text", text, "--output", tmp_path / "out", "--workers", 1, *OPTIONS)
    with files_up_to(60_000):
        assert run(*arguments) == 2
    *_, last = capsys.readouterr().err.splitlines()
    path, cause, fix = last.removeprefix("error: ").split(": ", 2)
    assert Path(path).is_relative_to(tmp_path / "out") and "wiki" in Path(path).name
    assert cause.startswith("File too large; free space there") and "resumes" in fix and "another --output" in fix
    assert run(*arguments) == 0
    assert content(tmp_path / "out") == content(data_set)


def test_completed_work_is_not_repeated(
    text: Path, data_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--text", text, "--output", tmp_path / "out", "--workers", 1, *OPTIONS)
    assert len(list((data_set / "corpus").glob("sentences_*.txt"))) > 5
    made: list[int] = []
    real = sentences._make_sentences

    def noted(*given: object) -> object:
        made.append(given[-1].number)
        return real(*given)

    monkeypatch.setattr(sentences, "_make_sentences", noted)
    with stopped_after(4, sentences, "write_atomically"):
        run(*arguments)
    assert made == [0, 1, 2, 3, 4]
    made.clear()
    assert run(*arguments) == 0
    assert made[0] == 4 and len(made) == len(set(made))
    assert content(tmp_path / "out") == content(data_set)
    capsys.readouterr()
    made.clear()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    assert run(*arguments) == 0
    assert not made
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before
    assert "complete already" in capsys.readouterr().err


def test_a_file_damaged_between_two_runs_is_written_again(text: Path, data_set: Path, tmp_path: Path) -> None:
    arguments = ("--text", text, "--output", tmp_path / "out", "--workers", 1, *OPTIONS)
    with stopped_after(4, sentences, "write_atomically"):
        run(*arguments)
    done = tmp_path / "out" / "corpus" / "sentences_001.txt"
    done.write_bytes(done.read_bytes()[:-1])
    assert run(*arguments) == 0
    assert content(tmp_path / "out") == content(data_set)


# The command of the preparation, which here makes many shards. Processes that a shell has put into
# the background, perhaps the tests too, ignore Ctrl-C.
SMALL_SHARDS = """
import signal
import sys
from data_utils.text import sources
from data_utils.text.__main__ import main
sources.SMALLEST_SHARD = sources.LARGEST_SHARD = 4000
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
"""


def test_killed_processes(text: Path, data_set: Path, tmp_path: Path) -> None:
    """Send Ctrl-C in the first step and SIGKILL to command and workers in the others; then run to the end."""
    script = tmp_path / "prepare.py"
    script.write_text(SMALL_SHARDS)
    out = tmp_path / "out"
    command = [sys.executable, str(script), "--text", str(text), "--workers", "2", *map(str, OPTIONS)]
    command += ["--output", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def ended(mark: str, how: signal.Signals) -> tuple[int, str]:
        """Return status and standard error of a run that gets a signal once a file exists."""
        process = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + PATIENCE
        while not list(out.glob(mark)) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):  # it may have ended already
            os.killpg(process.pid, how)
        _, errors = process.communicate(timeout=PATIENCE)
        return process.returncode, errors

    status, errors = ended("corpus/.work/sentences/000000.json", signal.SIGINT)
    assert status == 130
    assert errors.splitlines()[-1] == "interrupted"  # one word for all processes
    assert "Traceback" not in errors
    assert ended(".work/examples/000001.json", signal.SIGKILL)[0] == -signal.SIGKILL
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert content(out) == content(data_set)
    assert not list(out.rglob(".*"))


def test_other_settings_are_refused_until_overwritten(
    text: Path, data_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ("--text", text, "--output", out, "--workers", 1, *OPTIONS)
    with stopped_after(1, examples, "write_record_file"):
        run(*arguments)
    assert run(*arguments, "--seed", 3) == 2
    assert "records.seed 42 there, 3 now" in capsys.readouterr().err
    assert run(*arguments, "--min-characters", 500) == 2
    assert "text.min_characters 100 there, 500 now" in capsys.readouterr().err
    assert run(*arguments, "--seed", 3, "--overwrite") == 0
    assert "corpus is complete already" in capsys.readouterr().err  # which does not depend on the seed
    assert json.loads((out / "manifest.json").read_text())["settings"]["seed"] == 3
    assert run(*arguments) == 2
    assert run(*arguments, "--overwrite") == 0
    assert content(out) == content(data_set)


def test_bad_documents_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "Here is some text of article {}. It goes on for a while, and then ends."
    lines = [json.dumps({"title": f"Good {n}", "text": text.format(n)}) for n in range(60)]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, *['{"body": "Without text"}'] * 3]))
    real = sentences.Splitter.split

    def strict(splitter: sentences.Splitter, paragraph: str) -> list[str]:
        if "article 17" in paragraph:
            raise ValueError("a case nobody\nthought of")
        return real(splitter, paragraph)

    monkeypatch.setattr(sentences.Splitter, "split", strict)
    arguments = ("--jsonl", tmp_path / "a.jsonl", "--min-characters", 1, "--workers", 1, *OPTIONS)
    assert run(*arguments, "--output", tmp_path / "out", "--max-bad-articles", 4) == 0
    said = capsys.readouterr()
    assert "4 documents rejected (set_aside.jsonl)" in said.out
    lines = (tmp_path / "out" / "corpus" / "set_aside.jsonl").read_text().splitlines()
    first, *others = map(json.loads, lines)
    assert first["title"] == "Good 17"
    assert first["reason"] == "cannot be split into sentences: ValueError: a case nobody thought of"
    assert [f"line {n}: no text" in entry["reason"] for n, entry in zip((61, 62, 63), others)] == [True] * 3
    totals = json.loads((tmp_path / "out" / "manifest.json").read_text())["totals"]
    assert (totals["documents"], totals["set_aside"]) == (59, 4)
    assert run(*arguments, "--output", tmp_path / "few", "--max-bad-articles", 2) == 2
    said = capsys.readouterr()
    assert "--max-bad-articles 2" in said.err
    assert (tmp_path / "few" / "corpus" / "set_aside.jsonl").exists()
    # the limit does not affect any byte, so the run resumes with another one
    assert run(*arguments, "--output", tmp_path / "few", "--max-bad-articles", 9) == 0
    assert content(tmp_path / "few") == content(tmp_path / "out")
