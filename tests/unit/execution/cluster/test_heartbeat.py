"""The heartbeat detects lost processes and no others; listening sockets stand for processes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from execution.software.cluster.heartbeat import (
    LISTENS,
    REFUSES,
    SILENT,
    Heartbeat,
    ProbeHistory,
    Timing,
    lost_message,
    probe,
    unreachable,
    wait_for_servers,
)
from execution.software.cluster.membership import Membership
from utilities.errors import ProcessLostError

QUICK = Timing(interval=0.05, silence=0.5, patience=0.3)


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    """A socket that listens but never accepts, like a stopped process."""
    with socket.socket() as bound:
        bound.bind(("localhost", 0))
        bound.listen()
        yield bound


def membership(peer: socket.socket, index: int = 0) -> Membership:
    other = f"localhost:{peer.getsockname()[1]}"
    return Membership(("localhost:1", other) if index == 0 else (other, "localhost:1"), index)


@pytest.mark.parametrize(
    ("results", "gone"),
    [
        ([REFUSES], False),
        ([REFUSES, REFUSES], True),
        ([REFUSES, LISTENS, REFUSES], False),
        ([REFUSES, SILENT, REFUSES], False),
        ([SILENT] * 7, False),  # from second 5 to second 40
        ([SILENT] * 8, True),
        ([SILENT] * 7 + [LISTENS] + [SILENT] * 7, False),
    ],
)
def test_probes_of_a_lost_process(results, gone):
    history = ProbeHistory(silence=40)
    lost = [history.is_gone(1, result, probed=5.0 * n, now=5.0 * n + 5) for n, result in enumerate(results, start=1)]
    assert lost == [False] * (len(results) - 1) + [gone]


def test_stopped_process_is_alive_and_ended_process_is_lost(peer):
    lines: list[str] = []
    ended = threading.Event()

    def end(line: str) -> None:
        lines.append(line)
        ended.set()

    member = membership(peer)
    heartbeat = Heartbeat(member, QUICK, end)
    with heartbeat.monitored():
        with heartbeat.monitored():
            assert not ended.wait(1.0), lines
        peer.close()
        assert ended.wait(20)
    assert len(lines) == 1 and f"process 1 ({member.addresses[1]}) has ended" in lines[0]
    assert lines[0].endswith("so process 0 stops, too")  # there is nothing to resume yet


def test_process_that_stops_waiting_in_time_continues(peer):
    lines: list[str] = []
    heartbeat = Heartbeat(membership(peer, index=1), QUICK, lines.append)
    with heartbeat.monitored():
        peer.close()
        time.sleep(0.1)
    time.sleep(0.6)
    assert lines == []


def test_probe_results(peer, monkeypatch):
    member = membership(peer)
    assert probe(member.addresses[1]) == LISTENS and unreachable(member) == []
    assert probe("nowhere.invalid:1") == SILENT and probe("a..b:1") == SILENT

    def unreached(*args: Any, **options: Any) -> None:
        raise TimeoutError

    peer.close()
    assert probe(member.addresses[1]) == REFUSES and unreachable(member) == [1]
    monkeypatch.setattr(socket, "create_connection", unreached)
    assert probe(member.addresses[1]) == SILENT and unreachable(member) == [1]
    assert (
        lost_message(member, [0, 1])
        == f"process 0 (localhost:1) and process 1 ({member.addresses[1]}) have ended, or cannot be reached"
    )


def test_waiting_for_servers(peer):
    member = membership(peer)  # listens, but says nothing: it is no server of TensorFlow yet

    def serve() -> None:
        for _ in range(2):
            connection, _ = peer.accept()
            connection.close()
        connection, _ = peer.accept()
        connection.sendall(b"\x00\x00\x18\x04")
        connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    wait_for_servers(member, limit=30)
    thread.join()
    peer.close()
    with pytest.raises(ProcessLostError, match=rf"process 1 \({member.addresses[1]}\) has ended"):
        wait_for_servers(member, limit=0.3)
