"""Notices, while this process waits for others, that one of them is gone for good.

TensorFlow's collectives fail at once where a connection is closed, and wait for ever where nothing closes it: a machine
without power, a network that is cut, a process that ended before the first exchange. So a thread knocks at the ports of
the others meanwhile. It is the system that answers, not the process: one that compiles, is stopped, or gets no CPU is
not missed, however long that takes. A system that refuses says that the process has ended; one that says nothing is
given a while.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional

from execution.software.cluster.lost import LISTENS, REFUSES, knocks, told
from execution.software.cluster.membership import Membership
from utilities.errors import EXIT_USER_ERROR, ReplicaLostError


class Times(NamedTuple):
    """Seconds; in all less than a minute from the end of a process to that of the last one that waits for it.

    Attributes:
        interval: between knocks.
        silence: without an answer, after which a process is gone.
        patience: that the main thread has to find out by itself, which leaves more in order.
    """

    interval: float = 5.0
    silence: float = 35.0
    patience: float = 10.0


class Absence:
    """Which processes are gone, from the answers to knocks.

    Args:
        silence: seconds without an answer that it takes.
    """

    REFUSALS = 2  # one after the other; a single one may be a busy system's

    def __init__(self, silence: float = Times().silence) -> None:
        self._silence = silence
        self._since: Dict[int, float] = {}
        self._refusals: Dict[int, int] = {}

    def is_gone(self, number: int, answer: str, knocked: float, now: float) -> bool:
        """Whether a process is gone, all its answers taken together.

        Args:
            number: of the process.
            answer: to the last knock.
            knocked, now: when that was, and when the answer came, in seconds that only grow.
        """
        self._refusals[number] = self._refusals.get(number, 0) + 1 if answer == REFUSES else 0
        if answer == LISTENS:
            self._since.pop(number, None)
            return False
        return self._refusals[number] >= self.REFUSALS or now - self._since.setdefault(number, knocked) >= self._silence


class Lookout:
    """Ends this process when another one is gone and the main thread waits for it in vain.

    Args:
        membership: who is who.
        times: how long what takes.
        end: ends the process, with a line that says why.

    Attributes:
        run: the name under which the run goes on, for that line; None while unknown.
    """

    run: Optional[str] = None

    def __init__(
        self, membership: Membership, times: Optional[Times] = None, end: Optional[Callable[[str], None]] = None
    ) -> None:
        self._membership = membership
        self._times = times or Times()
        self._end = end or end_at_once
        self._others = [number for number in range(membership.count) if number != membership.index]
        self._kept = 0
        self._changed = threading.Condition()
        self._thread: Optional[threading.Thread] = None

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """For the time of a block in which this process may have to wait for others; blocks may be nested."""
        with self._changed:
            self._kept += 1
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="lookout", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._kept -= 1
                self._changed.notify_all()

    def _keep(self) -> None:
        absence = Absence(self._times.silence)
        while True:
            if not self._kept:
                with self._changed:
                    self._changed.wait_for(lambda: self._kept)
                absence = Absence(self._times.silence)
            knocked = time.monotonic()
            gone = self._gone(absence, knocked)
            if gone and not self._left_within(self._times.patience):
                error = ReplicaLostError(told(self._membership, gone), self._membership.index, self.run or "…")
                self._end(str(error))
                return
            self._left_within(max(knocked + self._times.interval - time.monotonic(), 0))

    def _gone(self, absence: Absence, knocked: float) -> List[int]:
        answers = knocks(self._membership, self._others)
        now = time.monotonic()
        return [number for number, answer in answers.items() if absence.is_gone(number, answer, knocked, now)]

    def _left_within(self, seconds: float) -> bool:
        """Whether the main thread leaves the block, or all blocks, in so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._kept, timeout=seconds)


def end_at_once(line: str) -> None:
    """End this process from any of its threads; the main thread may be in a computation that never ends."""
    with contextlib.suppress(OSError):
        os.write(2, f"\nerror: {line}\n".encode())
    os._exit(EXIT_USER_ERROR)
