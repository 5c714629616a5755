"""Who is missed and who is not: processes played by sockets, on which the system answers for them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from execution.software.cluster.lookout import Absence, Lookout, Times
from execution.software.cluster.lost import LISTENS, REACHABLE_WITHIN, REFUSES, SILENT, knock, told, unreachable
from execution.software.cluster.membership import Membership
from execution.software.cluster.waiting import wait_for_all

QUICK = Times(interval=0.05, silence=0.5, patience=0.3)


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    """A process that is there and never gets to run: nobody accepts."""
    with socket.socket() as bound:
        bound.bind(("localhost", 0))
        bound.listen()
        yield bound


def membership(peer: socket.socket, index: int = 0) -> Membership:
    other = f"localhost:{peer.getsockname()[1]}"
    return Membership(("localhost:1", other) if index == 0 else (other, "localhost:1"), index)


@pytest.mark.parametrize(
    ("answers", "gone"),
    [
        ([REFUSES], False),
        ([REFUSES, REFUSES], True),
        ([REFUSES, LISTENS, REFUSES], False),
        ([REFUSES, SILENT, REFUSES], False),
        ([SILENT] * 7, False),  # from the fifth second to the fortieth
        ([SILENT] * 8, True),
        ([SILENT] * 7 + [LISTENS] + [SILENT] * 7, False),
    ],
)
def test_what_makes_a_process_gone(answers, gone):
    absence = Absence(silence=40)
    found = [absence.is_gone(1, answer, knocked=5.0 * n, now=5.0 * n + 5) for n, answer in enumerate(answers, start=1)]
    assert found == [False] * (len(answers) - 1) + [gone]


def test_all_end_within_a_minute():
    times = Times()
    assert times.interval + times.silence + REACHABLE_WITHIN + times.patience < 60  # silence is looked at after a knock
    assert Absence.REFUSALS * (times.interval + REACHABLE_WITHIN) + times.patience < 60


def test_a_process_that_does_not_run_is_not_missed_and_one_that_ended_is(peer):
    lines: list[str] = []
    ended = threading.Event()

    def end(line: str) -> None:
        lines.append(line)
        ended.set()

    member = membership(peer)
    lookout = Lookout(member, QUICK, end)
    with lookout.kept():
        with lookout.kept():
            assert not ended.wait(1.0), lines
        peer.close()
        assert ended.wait(20)
    assert lines == [
        f"replica 1 ({member.addresses[1]}) has ended, or cannot be reached, so replica 0 stops, too; go on from the"
        " last checkpoint with --name … --resume, with any number of replicas"
    ]


def test_who_leaves_in_time_or_waits_for_nobody_goes_on(peer):
    lines: list[str] = []
    lookout = Lookout(membership(peer, index=1), QUICK, lines.append)
    with lookout.kept():
        peer.close()
        time.sleep(0.1)
    time.sleep(0.6)
    assert lines == []


def test_answers(peer, monkeypatch):
    member = membership(peer)
    assert knock(member.addresses[1]) == LISTENS and unreachable(member) == []

    def unreached(*args: Any, **options: Any) -> None:
        raise TimeoutError

    peer.close()
    assert knock(member.addresses[1]) == REFUSES and unreachable(member) == [1]
    monkeypatch.setattr(socket, "create_connection", unreached)
    assert knock(member.addresses[1]) == SILENT and unreachable(member) == [1]
    assert (
        told(member, [0, 1])
        == f"replica 0 (localhost:1) and replica 1 ({member.addresses[1]}) have ended, or cannot be reached"
    )


def test_waits_for_all_and_says_for_whom(caplog):
    with socket.socket() as late:
        late.bind(("localhost", 0))
        member = membership(late)
        threading.Timer(0.4, late.listen).start()
        wait_for_all(member, every=0.05)
    assert f"replica 0 waits for 1 ({member.addresses[1]})" in caplog.text
