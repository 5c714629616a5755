"""Signals become a request to stop; a second one ends the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import types

import pytest

from keras_extensions.backend import keras, tf
from keras_extensions.callbacks.signals import ShortExecutions, StopRequest, StopWhenRequested, stop_on_signals
from utilities.errors import Stopped


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_deferred_signal_requests_a_stop(number):
    with stop_on_signals() as request:
        with request.defer():
            os.kill(os.getpid(), number)
            assert request.signal == number.name
        callback = StopWhenRequested(request)
        callback.set_model(type("Model", (), {"stop_training": False})())
        callback.on_train_batch_end(0)
        assert callback.model.stop_training


def test_other_signals_stop_the_run():
    with stop_on_signals() as request:
        with pytest.raises(Stopped):
            os.kill(os.getpid(), signal.SIGTERM)
        assert request.signal == "SIGTERM"
    with stop_on_signals() as request, pytest.raises(Stopped):
        request.signal = "SIGINT"  # arrived just before
        with request.defer():
            raise AssertionError("training must not begin")


def test_handlers_are_restored():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with stop_on_signals():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert signal.set_wakeup_fd(-1) == -1


def test_handlers_are_unchanged_in_another_thread():
    seen = []

    def run():
        with stop_on_signals() as request:
            seen.append(request.signal)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [None]


LONG = """
import os, signal, sys, time
from keras_extensions.callbacks.signals import stop_on_signals
from keras_extensions.backend import tf
with stop_on_signals() as request, request.defer():
    print("ready", flush=True)
    # An execution that Python's own handlers cannot interrupt.
    tf.function(lambda: tf.while_loop(lambda i: i < 10**12, lambda i: i + 1, [tf.constant(0, tf.int64)]))()
"""


def test_second_signal_ends_a_running_execution():
    process = subprocess.Popen(
        [sys.executable, "-c", LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        while "again to stop at once" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.communicate()


def stopping(own: str | None, largest: object) -> tuple[StopRequest, bool]:
    request, model = StopRequest(), types.SimpleNamespace(stop_training=False)
    request.signal = own
    callback = StopWhenRequested(request, largest)
    callback.set_model(model)
    callback.on_train_batch_end(0)
    return request, model.stop_training


@pytest.mark.parametrize(
    ("own", "agreed", "ends", "name"),
    [
        (None, 0, False, None),
        (None, 15, True, "SIGTERM"),
        ("SIGINT", 15, True, "SIGINT"),
        ("SIGTERM", 15, True, "SIGTERM"),
    ],
)
def test_all_processes_stop_at_the_same_step(own, agreed, ends, name):
    seen = []
    request, ended = stopping(own, lambda number: seen.append(number) or agreed)
    assert ended == ends and request.signal == name
    assert seen == [{None: 0, "SIGINT": 2, "SIGTERM": 15}[own]]


class Recorder(keras.callbacks.Callback):
    """Records the ends of executions, with the mean loss that Keras passes."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append((batch + 1, logs["loss"]))


def train(first_step, seconds, stop_at=None, ends=(10, 20)):
    """Train 23 updates in periods that end at ``ends``; each update takes ``seconds`` of the clock.

    Returns:
        The steps at the ends of periods, and the updates of each execution.
    """
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(1,))])
    model.compile("sgd", "mse", steps_per_execution=10)
    now, lengths, request, recorder = [0.0], [], StopRequest(), Recorder()

    def clock():
        return now[0]

    def period_end(step):
        return min((end for end in ends if end > step), default=23)

    class Length(StopWhenRequested):
        def on_train_batch_end(self, batch, logs=None):
            lengths.append(batch + 1 - sum(lengths))
            if sum(lengths) == stop_at:
                self.request.signal = "SIGTERM"
            super().on_train_batch_end(batch, logs)

    class Time(ShortExecutions):
        def on_train_batch_end(self, batch, logs=None):
            now[0] += seconds * (batch + 1 - sum(lengths))
            super().on_train_batch_end(batch, logs)

    data = tf.data.Dataset.from_tensors((tf.ones((2, 1)), tf.ones((2, 1)))).repeat()
    divided = Time([recorder], Length(request), period_end, first_step, clock)
    model.fit(data, steps_per_epoch=23 - first_step, verbose=0, callbacks=[divided])
    return [step for step, _ in recorder.seen], lengths


def test_long_periods_are_divided_into_short_executions():
    assert train(0, seconds=0.001) == ([10, 20, 23], [1, 2, 4, 3, 6, 4, 3])
    assert train(0, seconds=4.0) == ([10, 20, 23], [1, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1])
    assert train(0, seconds=60.0) == ([10, 20, 23], [1] * 23)
    assert train(7, seconds=0.001)[0] == [3, 13, 16]  # a run that was stopped within a period first completes it
    assert train(0, seconds=0.001, ends=(10, 17, 20)) == ([10, 17, 20, 23], [1, 2, 4, 3, 6, 1, 2, 1, 2, 1])


def test_stop_request_ends_a_period():
    assert train(0, seconds=60.0, stop_at=14) == ([10, 14], [1] * 14)
