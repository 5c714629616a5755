"""Turns SIGTERM and SIGINT into a request to stop: the running execution ends and the state is saved.

Python runs signal handlers only between its own instructions, and an execution of a compiled graph is one instruction.
Therefore a thread reads the signals from the pipe that Python's C handler writes to. It can react at once, and at a
second signal it ends the process even during an execution.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import Any, Callable, Dict, Iterator, Optional

from keras_extensions.backend import keras
from utilities.errors import Stopped

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """A request to stop the run, if there is one.

    Attributes:
        signal: name of the signal; None: no request.
        deferred: whether a signal only sets ``signal``, which is read after the running execution. Otherwise a signal
            raises ``Stopped`` in the main thread.
    """

    def __init__(self) -> None:
        self.signal: Optional[str] = None
        self.deferred = False

    @contextlib.contextmanager
    def defer(self) -> Iterator[None]:
        """Within the block, signals only set ``signal``."""
        self.deferred = True
        try:
            if self.signal is not None:
                raise Stopped(f"stopped by {self.signal}")
            yield
        finally:
            self.deferred = False

    def _handle(self, number: int, frame: Any) -> None:
        self.signal = signal.Signals(number).name
        if not self.deferred:
            raise Stopped(f"stopped by {self.signal}")


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Within the block, turn signals into a request to stop.

    Outside the main thread, where Python allows no handlers, nothing is changed.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous_pipe = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    previous: Dict[int, Any] = {number: signal.signal(number, request._handle) for number in SIGNALS}
    thread = threading.Thread(target=_answer_signals, args=(reader,), name="signals", daemon=True)
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


def _answer_signals(reader: int) -> None:
    """Acknowledge the first signal, and end the process at the second."""
    count = 0
    while True:
        received = os.read(reader, 64)
        if not received:
            return
        for number in received:
            if number not in SIGNALS:
                continue
            count += 1
            name = signal.Signals(number).name
            if count > 1:
                _print_error(f"{name} again: stopping at once; complete checkpoints are kept")
                os._exit(128 + number)
            _print_error(f"{name}: stopping when the running steps are done and saved; signal again to stop at once")


def _print_error(line: str) -> None:
    """Write to standard error, bypassing Python's buffered streams, whose locks the main thread may hold."""
    with contextlib.suppress(OSError):
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"\n{line}\n".encode())


class StopWhenRequested(keras.callbacks.Callback):
    """Ends ``fit`` after the execution during which a stop was requested.

    Args:
        request: the request, which signals set.
        maximum: returns the maximum of a number over all replicas. It is applied to the number of the signal that this
            replica received, or 0, which makes all replicas end at the same step.
    """

    def __init__(self, request: StopRequest, maximum: Callable[[int], int] = int) -> None:
        super().__init__()
        self.request = request
        self.maximum = maximum

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        own = self.request.signal
        number = self.maximum(0 if own is None else signal.Signals[own])
        if number:
            self.request.signal = own or signal.Signals(number).name
            self.model.stop_training = True
