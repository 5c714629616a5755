"""SIGTERM and SIGINT as a wish to stop: the running execution ends, the state is saved.

Python runs a signal's handler between two of its own instructions, and an execution of a compiled graph is one. So a
thread reads the signals from the pipe that Python's C handler writes to: the answer comes at once, and a second signal
ends the process at once, whatever is running.
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
    """Whether someone asked the run to stop, and who.

    Attributes:
        signal: name of the signal; None: nobody asked.
        patient: whether to go on until someone looks at ``signal``, as during an execution. Where it is false a signal
            raises ``Stopped`` in the main thread.
    """

    def __init__(self) -> None:
        self.signal: Optional[str] = None
        self.patient = False

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """A time in which a signal waits for someone to look."""
        self.patient = True
        try:
            if self.signal is not None:
                raise Stopped(f"stopped by {self.signal}")
            yield
        finally:
            self.patient = False

    def _handle(self, number: int, frame: Any) -> None:
        self.signal = signal.Signals(number).name
        if not self.patient:
            raise Stopped(f"stopped by {self.signal}")


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turns signals into a request for the time of a block.

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
    thread = threading.Thread(target=_watch, args=(reader,), name="signals", daemon=True)
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


def _watch(reader: int) -> None:
    """Says that the first signal was heard, and lets the second one end the process."""
    heard = 0
    while True:
        received = os.read(reader, 64)
        if not received:
            return
        for number in received:
            if number not in SIGNALS:
                continue
            heard += 1
            name = signal.Signals(number).name
            if heard > 1:
                _say(f"{name} again: stopping at once; checkpoints that are complete stay")
                os._exit(128 + number)
            _say(f"{name}: stopping when the running steps are done and saved; again to stop at once")


def _say(line: str) -> None:
    """Past Python's buffered streams, whose locks the main thread may hold."""
    with contextlib.suppress(OSError):
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"\n{line}\n".encode())


class StopWhenAsked(keras.callbacks.Callback):
    """Ends ``fit`` after the execution during which a stop was asked for.

    Args:
        request: whether someone asked.
        largest: makes of the numbers of the signals that the processes of a run have got, 0 where there was none, the
            largest, so that all end at the same step.
    """

    def __init__(self, request: StopRequest, largest: Callable[[int], int] = int) -> None:
        super().__init__()
        self.request = request
        self.largest = largest

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Keras: an execution ended."""
        own = self.request.signal
        number = self.largest(0 if own is None else signal.Signals[own])
        if number:
            self.request.signal = own or signal.Signals(number).name
            self.model.stop_training = True
