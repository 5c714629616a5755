"""Turns SIGTERM, SIGINT and SIGHUP into a request to stop: the running call of the graph ends, the state is saved.

Python runs signal handlers only between its own instructions, and a call of a compiled graph is one instruction.
Therefore a thread reads the signals from the pipe that Python's C handler writes to. It can react at once, and at a
second signal it ends the process even during a call.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any, Callable, Dict, Iterator, Optional

from utilities.errors import Stopped, print_error

CALL_SECONDS = 10.0  # a request to stop is noticed at the end of a call
WAIT_SECONDS = 3.0  # from a signal to the end of a wait for other processes
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
    """A request to stop the run, by the signal of this name. If ``deferred``, it is read after the running call.

    Otherwise a signal raises ``Stopped`` in the main thread.
    """

    def __init__(self) -> None:
        self.signal: Optional[str] = None
        self.deferred = False

    @contextlib.contextmanager
    def defer(self) -> Iterator[None]:
        self.deferred = True
        try:
            if self.signal is not None:
                raise Stopped(self.signal)
            yield
        finally:
            self.deferred = False

    def agree(self, maximum: Callable[[int], int] = int) -> bool:
        """Pass a request in any process on to all, which must call this, and return whether there is one."""
        own = self.signal
        number = maximum(0 if own is None else signal.Signals[own])
        if number:
            self.signal = own or signal.Signals(number).name
        return bool(number)

    def _handle(self, number: int, frame: Any) -> None:
        self.signal = signal.Signals(number).name
        if not self.deferred:
            raise Stopped(self.signal)


@contextlib.contextmanager
def stop_on_signals(is_waiting: Callable[[], bool] = bool) -> Iterator[StopRequest]:
    """Within the block, turn signals into a request to stop; outside the main thread, Python allows no handlers.

    A SIGHUP that ``nohup`` ignores stays ignored.

    Where ``is_waiting`` says that only other processes can end the running call, and nothing is to be saved, this
    process just ends.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous_pipe = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    handled = [each for each in SIGNALS if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]
    previous: Dict[int, Any] = {number: signal.signal(number, request._handle) for number in handled}
    arguments = (reader, request, is_waiting)
    thread = threading.Thread(target=_answer_signals, args=arguments, name="signals", daemon=True)
    thread.start()
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_pipe)
        os.close(writer)  # ends the thread
        thread.join()
        os.close(reader)


def _answer_signals(reader: int, request: StopRequest, is_waiting: Callable[[], bool]) -> None:
    """Acknowledge the first signal, and end the process at the second."""
    count = 0
    while True:
        received = os.read(reader, 64)
        if not received:
            return
        for number in received:
            if number not in SIGNALS or (count and number == signal.SIGHUP):  # kernel and shell both send SIGHUP
                continue
            count += 1
            name = signal.Signals(number).name
            if count > 1:
                print_error(f"{name} again: stopping at once; complete checkpoints are kept")
                os._exit(128 + number)
            print_error(f"{name}: stopping when the running steps are done and saved; signal again to stop at once")
            threading.Thread(target=_end_wait, args=(number, request, is_waiting), daemon=True).start()


def _end_wait(number: int, request: StopRequest, is_waiting: Callable[[], bool]) -> None:
    """End the process if its main thread does not learn of a signal because it waits for other processes."""
    time.sleep(WAIT_SECONDS)
    if request.signal is None and not request.deferred and is_waiting():
        print_error(f"stopped by {signal.Signals(number).name} while waiting for other processes")
        os._exit(128 + number)


class CallLengths:
    """Divides long logging periods into calls of a few seconds, so that a request to stop does not wait long.

    The ``maximum`` of a number over all processes makes them agree on every length.
    """

    def __init__(self, maximum: Callable[[int], int], clock: Callable[[], float]) -> None:
        self._maximum = maximum
        self._clock = clock
        self._longest = 1  # the first call compiles
        self._begin: Optional[float] = None  # of the call

    def next(self, most: int) -> int:
        """Return the number of updates of the next call, which begins now: at least 1, and at most ``most``."""
        length = self._maximum(max(min(self._longest, most), 1))
        self._begin = self._clock()
        return length

    def made(self, updates: int) -> None:
        """Learn from a call that ends now, unless the machine chose its length."""
        if self._begin is None:
            return
        seconds = self._clock() - self._begin
        allowed = int(CALL_SECONDS / max(seconds / updates, 1e-9))
        self._longest = min(2 * updates, allowed)
