"""Processes with wrong addresses, numbers or settings end with one line; threads stand for them.

Addresses such as 127.0.0.2 stand for other machines: a process listens only on its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from execution.launch import free_ports
from execution.software.cluster.introduction import Times, introduce
from execution.software.cluster.membership import Membership
from tests import ROOT
from tests.support.fake_processes import in_threads
from utilities.errors import UserError

QUICK = Times(warn_after=0.2, warn_every=0.2, name_limit=1.0, pause=0.05, answer=1.0)


@pytest.fixture
def ports() -> list[int]:
    with free_ports(3) as found:
        return found


def introduced_alone(member: Membership, settings: Any = None, times: Times = QUICK) -> str | None:
    """Return the message with which a process ended, or None for one that may train with the others."""
    try:
        introduce(member, settings or {}, times)
    except UserError as error:
        return str(error)
    return None


def introduced(members: list[Membership], settings: Any = None) -> list[str | None]:
    ends: list[str | None] = [None] * len(members)

    def one(number: int) -> None:
        ends[number] = introduced_alone(members[number], settings and settings[number])

    in_threads(len(members), one)
    return ends


def on_machines(ports: list[int]) -> tuple[str, ...]:
    return tuple(f"127.0.0.{number}:{ports[0]}" for number in range(1, 4))


def on_ports(ports: list[int]) -> tuple[str, ...]:
    return tuple(f"127.0.0.1:{port}" for port in ports)


@pytest.mark.parametrize("addresses", [on_machines, on_ports])
def test_processes_that_belong_together_go_on(addresses, ports):
    members = [Membership(addresses(ports), index) for index in range(3)]
    assert introduced(members, [{"seed": 1, "x": (1, 2)}] * 3) == [None] * 3
    for port in ports:  # they are free for TensorFlow's servers
        socket.create_server(("127.0.0.1", port)).close()


def test_numbers_that_two_processes_have(ports):
    for index in (0, 1):
        addresses = on_ports(ports[:2])
        ends = introduced([Membership(addresses, index)] * 2)
        assert ends[0] == ends[1] and str(ends[0]).startswith(f"TF_CONFIG: two processes have the number {index}: ")
        assert str(ends[0]).count(f"{socket.gethostname()}, process id {os.getpid()}") == 2


def test_one_port_for_two_processes_of_a_machine(ports):
    addresses = (f"127.0.0.1:{ports[0]}", f"localhost:{ports[0]}")
    ends = introduced([Membership(addresses, 0), Membership(addresses, 1)])
    assert all("TF_CONFIG" in str(end) and str(ports[0]) in str(end) for end in ends), ends


def test_wrong_address_of_one(ports):
    right, wrong = on_ports(ports[:2]), on_ports([ports[0], ports[2]])
    for members in ([Membership(right, 0), Membership(wrong, 1)], [Membership(wrong, 0), Membership(right, 1)]):
        ends = introduced(members)
        assert ends[0] == ends[1] and "the addresses are" in str(ends[0]) and str(ports[2]) in str(ends[0])


def test_numbers_of_two_machines_that_are_exchanged(ports, monkeypatch):
    """Each listens where the other is said to be: as on machines, where a process opens its port, not its address."""
    addresses = on_machines(ports)[:2]
    monkeypatch.setattr(Membership, "is_on_loopback", False)
    servers = {0: "127.0.0.2", 1: "127.0.0.1"}
    create = socket.create_server
    monkeypatch.setattr(
        socket,
        "create_server",
        lambda address, **_: create((servers[int(threading.current_thread().name)], address[1])),
    )
    ends = introduced([Membership(addresses, 0), Membership(addresses, 1)])
    assert all(str(end).startswith("TF_CONFIG: ") for end in ends), ends
    assert all("leads to process" in str(end) or "listens at the address of process" in str(end) for end in ends)


def test_other_settings(ports):
    members = [Membership(on_ports(ports), index) for index in range(3)]
    ends = introduced(members, [{"seed": 1}, {"seed": 1}, {"seed": 5}])
    assert "seed is 5 for process 2 and 1 for process " in str(ends[2]) and "; start all with the same" in str(ends[2])
    assert all("seed is 5 for process 2" in str(end) for end in ends)


def test_a_port_that_is_taken_is_named_to_all(ports):
    members = [Membership(on_ports(ports), index) for index in range(3)]
    with socket.create_server(("127.0.0.1", ports[1])):
        ends = introduced(members)
    own = f"port {ports[1]} of process 1 ({members[0].addresses[1]}) cannot be opened (Address already in use); end the"
    assert str(ends[1]).startswith(own) and "TF_CONFIG" in str(ends[1])
    assert ends[0] == ends[2] == f"process 1 ({members[0].addresses[1]}) has ended: {ends[1]}"


def test_a_name_without_address_ends_all_processes(ports, caplog):
    addresses = (*on_ports(ports[:2]), "nowhere.invalid:1")  # RFC 6761: such names never resolve
    with in_the_background(Membership(addresses, 1), Times(pause=0.05)) as other:
        message = introduced_alone(Membership(addresses, 0))
        assert message is not None and "name of nowhere.invalid:1 after 1 s; correct the name" in message
        assert "waits for 2 (nowhere.invalid:1): no address is known for its name, which ends the run" in caplog.text
        other.join(10)
    assert not other.is_alive()


@contextlib.contextmanager
def in_the_background(member: Membership, times: Times) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=introduced_alone, args=(member, {}, times), daemon=True)
    thread.start()
    yield thread


def test_waiting_names_who_is_missing(ports, caplog):
    addresses = on_ports(ports)
    with socket.create_server(("127.0.0.1", ports[2])) as stranger, in_the_background(Membership(addresses, 1), QUICK):
        stranger.settimeout(5)

        def greet() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = stranger.accept()
                    connection.sendall(b"220 a mail server\r\n")
                    connection.close()

        threading.Thread(target=greet, daemon=True).start()
        with in_the_background(Membership(addresses, 0), QUICK):
            time.sleep(1.5)
            lines = [record.getMessage() for record in caplog.records]
            assert f"process 0 waits for 2 ({addresses[2]}): another program answers there" in lines
            assert 3 <= sum(line.startswith("process 0 waits") for line in lines) <= 8
            stranger.shutdown(socket.SHUT_RDWR)
    # the third arrives, and all go on
    assert introduced_alone(Membership(addresses, 2)) is None


def test_an_introduction_that_asks_nothing_is_ignored(ports):
    addresses = on_ports(ports[:2])
    other = {"token": "", "place": "elsewhere", "index": 1, "addresses": addresses, "settings": {}}
    with in_the_background(Membership(addresses, 0), QUICK) as first:
        time.sleep(0.5)
        with socket.create_connection(("127.0.0.1", ports[0]), timeout=5) as connection:
            connection.sendall(json.dumps(other).encode() + b"\n")
            assert connection.recv(1) == b"", "there is no answer"
        with in_the_background(Membership(addresses, 1), QUICK) as second:
            second.join(10)
            first.join(10)
    assert not first.is_alive() and not second.is_alive()


PROGRAM = """
import json, os, signal, sys
from execution.software.cluster.introduction import introduce
from execution.software.cluster.membership import read_membership
from keras_extensions.listeners.signals import stop_on_signals
from utilities.commands import log_to_stderr
from utilities.errors import Stopped, UserError
log_to_stderr()
try:
    with stop_on_signals():
        print("begun", flush=True)
        introduce(read_membership(), {})
except UserError as error:
    sys.exit(f"error: {error}")
except Stopped as stopped:
    sys.exit(stopped.status)
"""


def started(addresses: tuple[str, ...], index: int) -> subprocess.Popen:
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CONFIG": json.dumps(config)}
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    return process


def test_a_signal_ends_a_wait_and_is_told_to_the_others(ports):
    addresses = on_ports(ports)
    first, second = started(addresses, 0), started(addresses, 1)
    time.sleep(1)
    before = psutil.Process(first.pid).memory_info().rss
    time.sleep(2)
    assert psutil.Process(first.pid).memory_info().rss - before < 5 << 20  # memory does not grow
    begun = time.monotonic()
    first.send_signal(signal.SIGTERM)
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 128 + signal.SIGTERM and time.monotonic() - begun < 5
    _, errors = second.communicate(timeout=60)
    assert errors.endswith(f"error: process 0 ({addresses[0]}) has ended: stopped by SIGTERM\n"), errors
