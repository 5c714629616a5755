"""metrics.jsonl, and the report that is refreshed during the run without delaying it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from keras_extensions.listeners.outputs import FIRST_REPORT_SECONDS, LiveReport, MetricsFile
from keras_extensions.listeners.reporting import Evaluation, Period
from training.monitoring import report_command
from utilities.files import PROJECT

WORKS = "open('ran', 'a').write('x')"


def live(folder: Path, code: str, every: float = 100.0) -> tuple[LiveReport, list[float]]:
    """Return a report that runs this code, and its clock: one number, the seconds."""
    clock = [0.0]
    report = LiveReport([sys.executable, "-c", code], folder, every, lambda: clock[0])
    report.begin(0, 10)
    return report, clock


def wait_for(condition, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition is still false"
        time.sleep(0.02)


def ran(folder: Path) -> int:
    path = folder / "ran"
    return len(path.read_text()) if path.exists() else 0


def step(report: LiveReport, clock: list[float], to: float) -> None:
    clock[0] = to
    report.period(None)


def test_metrics_file_appends_after_an_incomplete_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "met')
    file = MetricsFile(path)
    file.begin(2, 6)
    file.period(Period(4, 6, 2, 32, 4.0, 4.0, True, None, None, {"mlm_loss": float("nan")}))
    file.period(Period(6, 6, 2, 48, 6.0, 8.0, False, 0.0, None, {"loss": 4.2, "mlm_loss": 3.5}))
    file.evaluated(Evaluation(6, 6, 48, {"f1": 50.0, "recall": float("nan")}, True))
    file.end()
    lines = path.read_text().splitlines()
    assert lines[:2] == ['{"step": 1}', '{"step": 2, "met']
    first, second, third = (json.loads(line) for line in lines[2:])
    assert first["metrics"]["mlm_loss"] is None, "JSON has no NaN"
    assert second == {
        "step": 6, "total_steps": 6, "samples": 48, "seconds": 6.0, "throughput": 8.0, "compiling": False,
        "learning_rate": None, "metrics": {"loss": 4.2, "mlm_loss": 3.5},
    }  # fmt: skip
    assert third == {"step": 6, "total_steps": 6, "samples": 48, "evaluation": {"f1": 50.0, "recall": None}}


def test_report_is_refreshed_at_intervals(tmp_path):
    report, clock = live(tmp_path, WORKS)
    for now in (0, FIRST_REPORT_SECONDS - 1):
        step(report, clock, now)
    assert report._process is None and ran(tmp_path) == 0
    step(report, clock, FIRST_REPORT_SECONDS)
    wait_for(lambda: ran(tmp_path) == 1)
    for now in (31, 60, FIRST_REPORT_SECONDS + 99):
        wait_for(lambda: report._process is None or report._process.poll() is not None)
        step(report, clock, now)
    assert ran(tmp_path) == 1
    step(report, clock, FIRST_REPORT_SECONDS + 101)
    wait_for(lambda: ran(tmp_path) == 2)
    report.end()


def test_one_report_process_at_a_time(tmp_path):
    report, clock = live(tmp_path, "import time; time.sleep(60)", every=1.0)
    step(report, clock, 1)
    process = report._process
    for now in range(2, 50):
        step(report, clock, now)
        assert report._process is process
    report.end()
    assert process.poll() < 0, "ended by a signal, not by itself"
    report.end()


@pytest.mark.parametrize("command", [["/no/such/program"], [sys.executable, "-c", "raise SystemExit(3)"]])
def test_failing_report_is_one_warning(tmp_path, caplog, command):
    clock = [0.0]
    report = LiveReport(command, tmp_path, 1.0, lambda: clock[0])
    for _ in range(2):  # training begins again after a rewind
        report.begin(0, 10)
        for _ in range(4):
            step(report, clock, clock[0] + 2)
            if report._process is not None:
                report._process.wait()
    assert caplog.text.count("not refreshed") == 1
    report.end()


def test_real_command_writes_a_page_that_refreshes_itself(tmp_path):
    period = {"step": 10, "total_steps": 100, "samples": 80, "metrics": {"loss": 1.0}}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(period) + "\n")
    clock = [0.0]
    report = LiveReport(report_command(tmp_path), PROJECT, 60.0, lambda: clock[0])
    report.begin(0, 100)
    step(report, clock, FIRST_REPORT_SECONDS)
    wait_for(lambda: report._process.poll() is not None)
    assert report._process.returncode == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<meta http-equiv="refresh" content="60">' in page and "step 10 of 100" in page
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("report")] == ["report.html"]
    report.end()
