"""The report that is refreshed during the run: when, at what cost, and that it never stands in the way."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from keras_extensions.callbacks.live_report import FIRST_AFTER, LARGEST_SHARE, LiveReport, children_seconds
from training.listeners import ROOT, report_command

WORKS = (
    "import time\nend = time.process_time() + {0}\nwhile time.process_time() < end: pass\nopen('ran', 'a').write('x')"
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def live(folder: Path, code: str, every: float = 100.0) -> tuple[LiveReport, Clock]:
    clock = Clock()
    report = LiveReport([sys.executable, "-c", code], folder, every, clock)
    report.begin(0, 10)
    return report, clock


def wait_for(condition, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing came of it"
        time.sleep(0.02)


def ran(folder: Path) -> int:
    path = folder / "ran"
    return len(path.read_text()) if path.exists() else 0


def step(report: LiveReport, clock: Clock, to: float) -> None:
    clock.now = to
    report.period(None)


def test_refreshes_after_a_while_and_then_at_most_every_so_often(tmp_path):
    report, clock = live(tmp_path, WORKS.format(0))
    for now in (0, FIRST_AFTER - 1):
        step(report, clock, now)
    time.sleep(0.3)
    assert ran(tmp_path) == 0
    step(report, clock, FIRST_AFTER)
    wait_for(lambda: ran(tmp_path) == 1)
    for now in (31, 60, FIRST_AFTER + 99):
        wait_for(lambda: report._process is None or report._process.poll() is not None)
        step(report, clock, now)
    assert ran(tmp_path) == 1
    step(report, clock, FIRST_AFTER + 101)
    wait_for(lambda: ran(tmp_path) == 2)
    report.end()


def test_what_takes_long_is_done_less_often(tmp_path):
    """0.5 s of processor time are 2 % of 25 s, whatever was asked for."""
    report, clock = live(tmp_path, WORKS.format(0.5), every=1.0)
    before = children_seconds()
    step(report, clock, 1)
    wait_for(lambda: ran(tmp_path) == 1 and report._process.poll() is not None)
    step(report, clock, 2)
    spent = children_seconds() - before
    assert spent >= 0.5
    step(report, clock, 0.99 * spent / LARGEST_SHARE)
    assert report._process is None, "too early"
    step(report, clock, 1 + spent / LARGEST_SHARE)
    assert report._process is not None
    report.end()


def test_never_two_at_a_time_and_none_left_behind(tmp_path):
    report, clock = live(tmp_path, "import time; time.sleep(60)", every=1.0)
    step(report, clock, 1)
    process = report._process
    for now in range(2, 50):
        step(report, clock, now)
        assert report._process is process
    started = time.monotonic()
    report.end()
    assert process.poll() is not None and time.monotonic() - started < 10
    report.end()


@pytest.mark.parametrize("command", [["/no/such/program"], [sys.executable, "-c", "raise SystemExit(3)"]])
def test_what_fails_is_a_warning_once(tmp_path, caplog, command):
    clock = Clock()
    report = LiveReport(command, tmp_path, 1.0, clock)
    report.begin(0, 10)
    for now in (1, 2, 3, 100):
        step(report, clock, now)
        if report._process is not None:
            report._process.wait()
    assert caplog.text.count("not refreshed") == 1
    report.end()


def test_the_real_command_writes_a_page_that_browsers_load_again(tmp_path):
    period = {"step": 10, "total_steps": 100, "samples": 80, "metrics": {"loss": 1.0}}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(period) + "\n")
    clock = Clock()
    report = LiveReport(report_command(tmp_path), ROOT, 60.0, clock)
    report.begin(0, 100)
    step(report, clock, FIRST_AFTER)
    wait_for(lambda: report._process.poll() is not None, 60)
    assert report._process.returncode == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<meta http-equiv="refresh" content="60">' in page and "step 10 of 100" in page
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("report")] == ["report.html"]
    report.end()
