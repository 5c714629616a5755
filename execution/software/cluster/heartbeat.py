"""Detects that another process of the run is gone, and reports which one.

TensorFlow's collectives fail if a connection is closed, but wait forever if nothing closes it: after a power failure,
a network failure, or the end of a process before the first exchange. Therefore a thread probes the other processes'
ports while this process waits for them. The operating system answers, not the process, so one that compiles, is
stopped, or gets no processor time still counts as alive. A refused connection means that the process has ended; a
silent machine is given some time.

TensorFlow's coordination service is no alternative: it regards a process that does not run for 10 seconds as dead, and
only a private function changes that limit.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

from execution.software.cluster.membership import Membership, host_and_port
from utilities.errors import EXIT_USER_ERROR, ProcessLostError, one_line, print_error
from utilities.progress import waiting

PROBE_TIMEOUT = 5.0  # seconds
# After an error, a process stays this long; otherwise slower processes would report it as the first to end.
SECONDS_TO_STAY = 4.0
SECONDS_BETWEEN_PROBES = 0.2
SECONDS_TO_START = 300.0  # of TensorFlow's server, which first opens all GPUs
LISTENS, REFUSES, SILENT = "listens", "refuses", "silent"  # results of a probe

_ERRORS_OF_OTHERS = ("ollective", "oordination", "task:", "GRPC", "RecvBuf", "heartbeat")
_TASK = re.compile(r"/task:(\d+)")


def probe(address: str) -> str:
    """Try to connect to ``host:port``; ``SILENT`` if nothing answers or the host's name has no address."""
    try:
        with socket.create_connection(host_and_port(address), timeout=PROBE_TIMEOUT):
            return LISTENS
    except ConnectionRefusedError:
        return REFUSES
    except (OSError, UnicodeError):  # UnicodeError: a part of the name is empty or too long
        return SILENT


def probe_others(membership: Membership) -> Dict[int, str]:
    """Probe all other processes at once; return the results by process number."""
    others = membership.others
    with ThreadPoolExecutor(max_workers=min(len(others), 32) or 1) as threads:
        return dict(zip(others, threads.map(lambda number: probe(membership.addresses[number]), others)))


def unreachable(membership: Membership) -> List[int]:
    return [number for number, result in probe_others(membership).items() if result != LISTENS]


def speaks_first(address: str) -> bool:
    """Return whether a server of TensorFlow listens at an address: HTTP/2 servers begin (RFC 7540, section 3.5)."""
    try:
        with socket.create_connection(host_and_port(address), timeout=PROBE_TIMEOUT) as connection:
            return bool(connection.recv(1))
    except (OSError, UnicodeError):
        return False


def wait_for_servers(membership: Membership, limit: float = SECONDS_TO_START) -> None:
    """Wait until all other processes' servers, introduced before, have started; else raise ``ProcessLostError``."""
    others, until = membership.others, time.monotonic() + limit
    with waiting("waiting for the servers of the other processes"):
        while others:
            others = [number for number in others if not speaks_first(membership.addresses[number])]
            if others and time.monotonic() >= until:
                raise ProcessLostError(lost_message(membership, others), membership.index)
            time.sleep(SECONDS_BETWEEN_PROBES if others else 0)


def lost_message(membership: Membership, gone: Sequence[int]) -> str:
    names = " and ".join(f"process {number} ({membership.addresses[number]})" for number in gone)
    return f"{names} {'has' if len(gone) == 1 else 'have'} ended, or cannot be reached"


def lost_processes(membership: Membership, error: Exception) -> Optional[str]:
    """Describe the processes that are gone if that is the cause of a TensorFlow error; otherwise return None."""
    text = str(error)
    if not any(word in text for word in _ERRORS_OF_OTHERS):
        return None
    gone = unreachable(membership)
    named = [int(number) for number in _TASK.findall(text) if int(number) != membership.index]
    first = [number for number in named if number in gone][:1]
    time.sleep(SECONDS_TO_STAY)
    lost = first or gone or [number for number in named if number < membership.count][:1]
    if not lost:
        return f"the connection with the other processes was lost ({one_line(text, 300)})"
    return lost_message(membership, lost)


class Timing(NamedTuple):
    """Seconds; in total, the last process ends less than a minute after the first."""

    interval: float = 5.0  # between probes
    silence: float = 35.0  # after which a process counts as gone
    patience: float = 10.0  # for the main thread to notice the loss by itself, which ends the run more cleanly


class ProbeHistory:
    """Decides from the results of probes which processes are gone; see :class:`Timing` for ``silence``."""

    REFUSALS = 2  # consecutive refusals, because a single one may be caused by a busy system

    def __init__(self, silence: float = Timing().silence) -> None:
        self._silence = silence
        self._silent_since: Dict[int, float] = {}
        self._refusals: Dict[int, int] = {}

    def is_gone(self, number: int, result: str, probed: float, now: float) -> bool:
        """Return whether process ``number`` is gone, given the result of a probe from second ``probed`` to ``now``."""
        self._refusals[number] = self._refusals.get(number, 0) + 1 if result == REFUSES else 0
        if result == LISTENS:
            self._silent_since.pop(number, None)
            return False
        if self._refusals[number] >= self.REFUSALS:
            return True
        return now - self._silent_since.setdefault(number, probed) >= self._silence


class Heartbeat:
    """Ends this process if another one is gone while the main thread waits for it.

    ``run_name`` is the name under which the run can be resumed, for the message that ``end`` gets; None while unknown.
    """

    run_name: Optional[str] = None

    def __init__(
        self, membership: Membership, timing: Optional[Timing] = None, end: Optional[Callable[[str], None]] = None
    ) -> None:
        self._membership = membership
        self._timing = timing or Timing()
        self._end = end or end_process
        self._blocks = 0  # number of nested blocks that the main thread is in
        self._changed = threading.Condition()
        self._thread: Optional[threading.Thread] = None

    @property
    def is_waiting(self) -> bool:
        return self._blocks > 0

    @contextlib.contextmanager
    def monitored(self) -> Iterator[None]:
        """Within the block, which may wait for other processes, probe them. Blocks may be nested."""
        with self._changed:
            self._blocks += 1
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._blocks -= 1
                self._changed.notify_all()

    def _run(self) -> None:
        history = ProbeHistory(self._timing.silence)
        while True:
            if not self._blocks:
                with self._changed:
                    self._changed.wait_for(lambda: self._blocks)
                history = ProbeHistory(self._timing.silence)
            probed = time.monotonic()
            gone = self._gone(history, probed)
            if gone and not self._left_within(self._timing.patience):
                lost = lost_message(self._membership, gone)
                self._end(str(ProcessLostError(lost, self._membership.index, self.run_name or "")))
                return
            self._left_within(max(probed + self._timing.interval - time.monotonic(), 0))

    def _gone(self, history: ProbeHistory, probed: float) -> List[int]:
        results = probe_others(self._membership)
        now = time.monotonic()
        return [number for number, result in results.items() if history.is_gone(number, result, probed, now)]

    def _left_within(self, seconds: float) -> bool:
        """Wait until the main thread has left all blocks; return False if it has not done so in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._blocks, timeout=seconds)


def end_process(message: str) -> None:
    """End this process from any thread, even if the main thread is in a computation that never ends."""
    print_error(f"error: {message}")
    os._exit(EXIT_USER_ERROR)
