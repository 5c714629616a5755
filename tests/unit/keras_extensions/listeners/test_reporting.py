"""Logging periods, the log lines that scripts parse, and what listeners write."""

from __future__ import annotations

import functools
import io
import json
import logging
import re

import pytest

from keras_extensions.backend import tf
from keras_extensions.listeners import progress
from keras_extensions.listeners.outputs import MetricsFile, TensorBoardScalars
from keras_extensions.listeners.progress import ProgressBar, early_log, run_log
from keras_extensions.listeners.reporting import Listener, Reporting

THROUGHPUT = re.compile(r"throughput: *(.*?) samples\/sec")
MLM_LOSS = re.compile(r"mlm_loss: *(\d*\.\d*)")
NSP_LOSS = re.compile(r"nsp_loss: *(\d*\.\d*)")


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Collected(Listener):
    def __init__(self):
        self.periods, self.firsts, self.ends = [], [], 0

    def compiled(self, seconds, updates, note):
        self.firsts.append((seconds, updates))

    def period(self, period):
        self.periods.append(period)

    def end(self):
        self.ends += 1


def drive(reporting, clock, periods, first_step=0):
    reporting.begin()
    step = first_step
    for updates, seconds, values in periods:
        clock.now += seconds
        step += updates
        reporting.report(step, values)
    reporting.end()


def metrics(mlm, nsp=0.7):
    return {"mlm_accuracy": 0.25, "loss": mlm + nsp, "mlm_loss": mlm, "nsp_loss": nsp}


def test_the_first_period_includes_compilation_and_the_others_do_not():
    """10 updates of 4 samples; 30 s with compilation for 2 of them, then 2 s for 4 updates: 8 samples a second."""
    clock, seen = Clock(), Collected()
    reporting = Reporting(10, 4, [seen], started=95.0, clock=clock)
    drive(reporting, clock, [(2, 30, metrics(7.0)), (4, 2, metrics(4.0)), (4, 1, metrics(3.0))])
    first, second, third = seen.periods
    assert seen.firsts == [(35.0, 2)]
    assert (first.step, first.updates, first.samples, first.compiling, first.eta) == (2, 2, 8, True, None)
    assert (second.step, second.updates, second.samples, second.compiling) == (6, 4, 24, False)
    assert second.throughput == pytest.approx(4 * 4 / 2)
    assert second.metrics["mlm_loss"] == 4.0
    assert second.eta == pytest.approx(2 / 4 * 4)
    assert third.throughput == pytest.approx(4 * 4 / 1)
    assert (third.seconds, third.eta) == (33.0, 0.0)
    assert seen.ends == 1


def test_overflows_are_counted_and_time_between_periods_is_left_out():
    clock, seen = Clock(), Collected()
    reporting = Reporting(8, 1, [seen], clock=clock)
    reporting.begin()
    for step in (4, 8):
        clock.now += 2
        reporting.report(step, {"overflows": 0.25})
        clock.now += 100
        reporting.exclude_time(100)
    assert [period.metrics["overflows"] for period in seen.periods] == [1.0, 1.0]
    assert [period.throughput for period in seen.periods] == [2.0, 2.0]


def test_rates_of_packs_sequences_and_tokens(tmp_path, caplog):
    """2 updates of 8 packs in 4 s, with 2.5 sequences and 100 tokens in a pack."""
    caplog.set_level(logging.INFO)
    clock, seen = Clock(), Collected()
    listeners = [seen, ProgressBar(io.StringIO()), MetricsFile(tmp_path / "metrics.jsonl")]
    reporting = Reporting(4, 8 * 2.4, listeners, packs_per_step=8, clock=clock)
    values = {"mlm_loss": 7.0, "sequences_per_pack": 2.5, "tokens_per_pack": 100.0}
    drive(reporting, clock, [(2, 30, values), (2, 4, values)])
    last = seen.periods[-1]
    assert last.throughput == pytest.approx(2 * 8 * 2.5 / 4)
    assert last.rates == {"packs": pytest.approx(2 * 8 / 4), "tokens": pytest.approx(2 * 8 * 100 / 4)}
    assert last.samples == 77  # 4 updates of 19.2 sequences on average
    line = next(r.message for r in caplog.records if "step 4/4" in r.message and "throughput" in r.message)
    assert THROUGHPUT.findall(line) == ["10.0"]
    assert "4.0 packs/sec" in line and "400.0 tokens/sec" in line
    written = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert (written["throughput"], written["packs_per_second"], written["tokens_per_second"]) == (10.0, 4.0, 400.0)


def test_steps_continue_after_a_resume():
    clock, seen = Clock(), Collected()
    reporting = Reporting(106, 2, [seen], first_step=100, seconds_before=7.0, clock=clock)
    drive(reporting, clock, [(2, 1, {}), (4, 1, {})], first_step=100)
    assert [period.step for period in seen.periods] == [102, 106]
    assert (seen.periods[-1].samples, seen.periods[-1].seconds) == (212, 9.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """With TQDM_DISABLE=1, tqdm has another default when it is imported."""
    monkeypatch.setattr(progress, "tqdm", functools.partial(progress.tqdm, disable=True))
    clock, console = Clock(), Terminal()
    drive(Reporting(2, 8, [ProgressBar(console)], clock=clock), clock, [(2, 1.0, metrics(7.0))])
    assert console.getvalue() == ""


@pytest.mark.parametrize("terminal", [False, True])
def test_log_file_has_one_parsable_line_per_period(tmp_path, terminal):
    clock, console = Clock(), Terminal() if terminal else io.StringIO()
    log_file = tmp_path / "train.log"
    with run_log(log_file, stream=console):
        reporting = Reporting(6, 8, [ProgressBar(console)], clock=clock)
        drive(reporting, clock, [(2, 9.0, metrics(m)) for m in (7.1234, 6.5, 0.25)])
        logging.getLogger("somebody").warning("disk is nearly full")
    text = log_file.read_text(encoding="utf-8")
    assert [float(v) for v in MLM_LOSS.findall(text)] == [7.1234, 6.5, 0.25]
    assert [float(v) for v in NSP_LOSS.findall(text)] == [0.7] * 3
    assert [float(v) for v in THROUGHPUT.findall(text)] == [1.8] * 3
    assert "first 2 steps after 9.0 s" in text
    line = next(line for line in text.splitlines() if "step 4/6" in line)
    assert line.index(" loss:") < line.index("mlm_loss") < line.index("nsp_loss") < line.index("mlm_accuracy")
    assert line.endswith("ETA 0:00:09")
    shown = console.getvalue()
    assert "disk is nearly full" in shown and "first 2 steps after 9.0 s" in shown
    if terminal:
        assert "100%" in shown and "samples/s, mlm_loss 0.250, nsp_loss 0.700" in shown
        assert not THROUGHPUT.search(shown), "the bar replaces the lines"
    else:
        assert len(THROUGHPUT.findall(shown)) == 3


def test_log_level_is_set_and_restored(tmp_path):
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    with run_log(tmp_path / "train.log", level="WARNING", stream=io.StringIO()):
        logging.getLogger("x").info("quiet")
    assert (root.level, root.handlers) == before
    assert (tmp_path / "train.log").read_text() == ""


def test_records_from_before_the_log_are_in_its_file_only(tmp_path):
    console = io.StringIO()
    with early_log() as early:
        logging.getLogger("x").warning("two words are lost")
        with run_log(tmp_path / "train.log", stream=console, early=early):
            logging.getLogger("x").warning("later")
    lines = (tmp_path / "train.log").read_text().splitlines()
    assert [line.partition(" WARNING ")[2] for line in lines] == ["two words are lost", "later"]
    assert console.getvalue().splitlines() == lines[1:]  # one form of lines everywhere


def test_existing_console_handler_does_not_duplicate_lines(tmp_path):
    console, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(console)
    root.addHandler(handler)
    try:
        with run_log(tmp_path / "train.log", stream=console):
            logging.getLogger("x").warning("once")
        assert handler in root.handlers
    finally:
        root.removeHandler(handler)
    assert re.fullmatch(r"[\d:, -]+ WARNING once\n", console.getvalue())


def test_metrics_file_and_tensorboard_agree(tmp_path):
    clock, seen = Clock(), Collected()
    listeners = [seen, MetricsFile(tmp_path / "metrics.jsonl"), TensorBoardScalars(tmp_path / "tensorboard")]
    drive(Reporting(8, 4, listeners, clock=clock), clock, [(n, 1, metrics(8.0 - n)) for n in (3, 3, 2)])
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [3, 6, 8]
    assert [record["metrics"] for record in records] == [period.metrics for period in seen.periods]
    events = [
        event
        for file in (tmp_path / "tensorboard").iterdir()
        for event in tf.compat.v1.train.summary_iterator(str(file))
    ]
    losses = {
        event.step: float(tf.make_ndarray(value.tensor))
        for event in events
        for value in event.summary.value
        if value.tag == "loss"
    }
    assert losses == pytest.approx({p.step: p.metrics["loss"] for p in seen.periods})
