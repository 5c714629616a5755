"""Signals become a request to stop; a second one ends the process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from keras_extensions.listeners.signals import StopRequest, stop_on_signals
from utilities.errors import Stopped


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_deferred_signal_requests_a_stop(number):
    with stop_on_signals() as request:
        with request.defer():
            os.kill(os.getpid(), number)
            assert request.signal == number.name
        assert request.agree()


def test_a_closed_terminal_sends_its_signal_twice():
    with stop_on_signals() as request, request.defer():
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.5)  # the process would have ended
        assert request.signal == "SIGHUP"


def test_a_terminal_that_nohup_ignores_does_not_stop_the_run():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as request:
            os.kill(os.getpid(), signal.SIGHUP)
            assert request.signal is None
    finally:
        signal.signal(signal.SIGHUP, before)


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


@contextlib.contextmanager
def in_a_long_call(block: str) -> Iterator[subprocess.Popen]:
    """Start a process that has said "ready" in a call that Python's own handlers cannot interrupt, within a block."""
    code = (
        "import hashlib, threading\nfrom keras_extensions.listeners.signals import stop_on_signals\n"
        f"with {block}:\n    threading.Timer(1.0, print, ['ready'], {{'flush': True}}).start()\n"
        "    hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"
    )
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True, bufsize=1)
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_second_signal_ends_a_running_call():
    with in_a_long_call("stop_on_signals() as request, request.defer()") as process:
        process.send_signal(signal.SIGINT)
        while "again to stop at once" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 128 + signal.SIGTERM


def test_a_signal_ends_a_wait_for_other_processes():
    with in_a_long_call("stop_on_signals(lambda: True)") as process:
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM and time.monotonic() - begun < 5
        assert "stopped by SIGTERM while waiting for other processes" in process.stderr.read()


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
