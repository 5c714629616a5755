"""Logging periods, the log lines that scripts parse, and all listeners under Keras' fit."""

from __future__ import annotations

import io
import json
import logging
import re

import numpy as np
import pytest

from keras_extensions.backend import keras, tf
from keras_extensions.callbacks.checkpoints import Checkpoints
from keras_extensions.callbacks.outputs import MetricsFile, TensorBoardScalars
from keras_extensions.callbacks.progress import Progress, format_duration, run_log
from keras_extensions.callbacks.reporting import Listener, Reporting
from keras_extensions.schedules import UpDown

THROUGHPUT = re.compile(r"throughput: *(.*?) samples\/sec")
MLM_LOSS = re.compile(r"mlm_loss: *(\d*\.\d*)")
NSP_LOSS = re.compile(r"nsp_loss: *(\d*\.\d*)")


class Clock:
    """A clock that tests move."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Collected(Listener):
    def __init__(self):
        self.periods, self.firsts, self.ends = [], [], 0

    def first_execution(self, seconds, updates, programs):
        self.firsts.append((seconds, updates))

    def period(self, period):
        self.periods.append(period)

    def end(self):
        self.ends += 1


def drive(reporting, clock, executions, epoch_length=None):
    """Call the hooks like Keras; ``executions`` are (updates, seconds, metrics)."""
    reporting.set_model(None)
    reporting.on_train_begin()
    reporting.on_epoch_begin(0)
    in_epoch = 0
    for updates, seconds, metrics in executions:
        clock.now += seconds
        in_epoch += updates
        reporting.on_train_batch_end(in_epoch - 1, metrics)
        if in_epoch == epoch_length:
            reporting.on_epoch_begin(1)
            in_epoch = 0
    reporting.on_train_end()


def metrics(mlm, nsp=0.7):
    return {"mlm_accuracy": 0.25, "loss": mlm + nsp, "mlm_loss": mlm, "nsp_loss": nsp}


def test_throughput_excludes_the_first_execution():
    """10 updates of 4 samples; 30 s of compilation, then 2 s for 4 updates: 8 samples a second."""
    clock, seen = Clock(), Collected()
    reporting = Reporting(10, 4, [seen], steps_per_period=6, started=95.0, clock=clock)
    drive(reporting, clock, [(2, 30, metrics(7.0)), (4, 2, metrics(4.0)), (4, 1, metrics(3.0))])
    first, second = seen.periods
    assert seen.firsts == [(35.0, 2)]
    assert (first.step, first.updates, first.samples, first.compiling) == (6, 6, 24, False)
    assert first.throughput == pytest.approx(4 * 4 / 2)
    assert first.metrics["mlm_loss"] == pytest.approx((2 * 7.0 + 4 * 4.0) / 6)
    assert first.eta == pytest.approx(2 / 4 * 4)
    assert second.throughput == pytest.approx(4 * 4 / 1)
    assert (second.seconds, second.eta) == (33.0, 0.0)
    assert seen.ends == 1


def test_rates_of_packs_sequences_and_tokens(tmp_path, caplog):
    """2 updates of 8 packs in 4 s, with 2.5 sequences and 100 tokens in a pack."""
    caplog.set_level(logging.INFO)
    clock, seen = Clock(), Collected()
    listeners = [seen, Progress(io.StringIO()), MetricsFile(tmp_path / "metrics.jsonl")]
    reporting = Reporting(4, 8 * 2.4, listeners, steps_per_period=2, packs_per_step=8, clock=clock)
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


def test_period_of_compilation_only_is_marked():
    clock, seen = Clock(), Collected()
    drive(Reporting(4, 8, [seen], clock=clock), clock, [(2, 10, metrics(7.0)), (2, 1, metrics(6.0))])
    assert [p.compiling for p in seen.periods] == [True, False]
    assert [p.throughput for p in seen.periods] == [pytest.approx(1.6), pytest.approx(16.0)]
    assert seen.periods[0].eta is None


def test_steps_continue_over_epochs_and_resumes():
    clock, seen = Clock(), Collected()
    reporting = Reporting(106, 2, [seen], first_step=100, clock=clock)
    drive(reporting, clock, [(2, 1, {}), (1, 1, {}), (2, 1, {}), (1, 1, {})], epoch_length=3)
    assert [p.step for p in seen.periods] == [102, 103, 105, 106]
    assert seen.periods[-1].samples == 212


def test_incomplete_last_period_is_reported():
    clock, seen = Clock(), Collected()
    reporting = Reporting(100, 2, [seen], steps_per_period=4, clock=clock)
    drive(reporting, clock, [(4, 1, metrics(5.0)), (3, 1, metrics(2.0))])
    assert [(p.step, p.updates) for p in seen.periods] == [(4, 4), (7, 3)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [False, True])
def test_log_file_has_one_parsable_line_per_period(tmp_path, terminal):
    clock, console = Clock(), Terminal() if terminal else io.StringIO()
    log_file = tmp_path / "train.log"
    with run_log(log_file, stream=console):
        reporting = Reporting(6, 8, [Progress(console)], clock=clock)
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
    assert console.getvalue() == "once\n"


@pytest.mark.parametrize(
    "seconds, text", [(None, "-:--:--"), (0, "0:00:00"), (724.4, "0:12:04"), (90061, "1 day, 1:01:01")]
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text


def test_all_listeners_under_keras_fit(tmp_path):
    """With executions of 3 steps, 8 steps of the real ``fit`` are three executions."""
    x = np.random.default_rng(0).normal(size=(32, 2)).astype(np.float32)
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    optimizer = keras.optimizers.SGD(UpDown(0.1, total_steps=8, warmup_frac=0.25))
    model.compile(optimizer=optimizer, loss="mse", steps_per_execution=3)
    seen, saved = Collected(), []
    listeners = [seen, MetricsFile(tmp_path / "metrics.jsonl"), TensorBoardScalars(tmp_path / "tensorboard")]
    callbacks = [Reporting(8, 4, listeners), Checkpoints(saved.append, 3)]
    dataset = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(4)
    model.fit(dataset, steps_per_epoch=8, epochs=1, verbose=0, callbacks=callbacks)
    assert [p.step for p in seen.periods] == [3, 6, 8]
    assert saved == [3, 6, 8]
    rates = [0.1 * (8 - n) / 6 for n in (2, 5, 7)]
    assert [p.learning_rate for p in seen.periods] == pytest.approx(rates)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records] == [3, 6, 8]

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
