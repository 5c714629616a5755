"""Signals become a request to stop; a second one ends the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from keras_extensions.listeners.signals import StopRequest, stop_on_signals
from utilities.errors import Stopped


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_deferred_signal_requests_a_stop(number):
    with stop_on_signals() as request:
        with request.defer():
            os.kill(os.getpid(), number)
            assert request.signal == number.name
        assert request.agree()


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


LONG = """
import os, signal, sys, time
from keras_extensions.listeners.signals import stop_on_signals
from keras_extensions.backend import tf
with stop_on_signals() as request, request.defer():
    print("ready", flush=True)
    # A call that Python's own handlers cannot interrupt.
    tf.function(lambda: tf.while_loop(lambda i: i < 10**12, lambda i: i + 1, [tf.constant(0, tf.int64)]))()
"""


def test_second_signal_ends_a_running_call():
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


WAIT = """
import hashlib, threading
from keras_extensions.listeners.signals import stop_on_signals
with stop_on_signals(lambda: True):
    threading.Timer(1.0, print, ["ready"], {"flush": True}).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # a call that handlers cannot interrupt: it waits for others
"""


def test_a_signal_ends_a_wait_for_other_processes():
    process = subprocess.Popen(
        [sys.executable, "-c", WAIT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        assert process.stdout.readline() == "ready\n"
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGTERM and time.monotonic() - begun < 5
        assert "stopped by SIGTERM while waiting for other processes" in errors
    finally:
        process.kill()


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
    request = StopRequest()
    request.signal = own
    assert request.agree(lambda number: seen.append(number) or agreed) == ends and request.signal == name
    assert seen == [{None: 0, "SIGINT": 2, "SIGTERM": 15}[own]]
