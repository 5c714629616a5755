"""Long work says that it goes on: bars become log lines where there is no terminal; lines of the log have one form."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import ROOT
from utilities import progress
from utilities.progress import progress_bar, waiting
from utilities.secrets import MaskingFormatter

LINE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO|WARNING) "


def test_without_a_terminal_progress_is_lines_of_the_log(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    with caplog.at_level(logging.INFO), progress_bar(30, "reading", "records") as bar:
        for _ in range(3):
            time.sleep(0.03)
            bar.update(10)
    assert "reading: 20 of 30 records" in caplog.text and "reading: 30 of 30 records" in caplog.text
    assert all("\r" not in message and "|" not in message for message in caplog.messages)
    assert capsys.readouterr().err == ""


def test_work_without_measure_logs_at_intervals_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        with pytest.raises(ValueError), waiting("compiling", seconds=0.02):
            time.sleep(0.15)
            raise ValueError
        count = len(caplog.messages)
        time.sleep(0.1)
    assert 2 <= count == len(caplog.messages)
    assert set(caplog.messages) == {"compiling, for 0 s"}


def test_warnings_of_python_and_tensorflow_have_the_form_of_the_log(tmp_path: Path) -> None:
    code = (
        "import logging, warnings; from utilities.commands import log_to_stderr\n"
        "log_to_stderr()\n"
        "warnings.warn('first', UserWarning)\n"
        "logging.getLogger('absl').warning('second'); logging.getLogger('tensorflow').warning('third')\n"
        "logging.getLogger('own').info('fourth')\n"
    )
    script = tmp_path / "script.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == 4 and all(re.match(LINE, line) for line in lines), done.stderr
    assert [re.search("first|second|third|fourth", line)[0] for line in lines] == ["first", "second", "third", "fourth"]  # type: ignore[index]


def test_a_traceback_stays_whole() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("own", logging.ERROR, "", 1, "failed", None, sys.exc_info())
    assert "two\nlines" in MaskingFormatter().format(record)


def test_a_program_without_standard_error_has_progress(monkeypatch, caplog):
    """As cron jobs and daemons start it, ``command 2>&-``."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(sys, "stderr", None)
    with progress_bar(2, "texts", "text") as bar:
        bar.update(2)
    assert "texts: 2 of 2 text" in caplog.text
