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
import time
from typing import Any, Callable, Dict, Iterator, Optional, Sequence

from keras_extensions.backend import keras
from utilities.errors import Stopped

EXECUTION_SECONDS = 10.0  # a request to stop is noticed at the end of an execution
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
                raise Stopped(self.signal)
            yield
        finally:
            self.deferred = False

    def _handle(self, number: int, frame: Any) -> None:
        self.signal = signal.Signals(number).name
        if not self.deferred:
            raise Stopped(self.signal)


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
        maximum: returns the maximum of a number over all processes. It is applied to the number of the signal that this
            process received, or 0, which makes all processes end at the same step.
    """

    def __init__(self, request: StopRequest, maximum: Callable[[int], int] = int) -> None:
        super().__init__()
        self.request = request
        self.maximum = maximum

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self.agree():
            self.model.stop_training = True

    def agree(self) -> bool:
        """Pass a request in any process on to all, which must call this, and return whether there is one."""
        own = self.request.signal
        number = self.maximum(0 if own is None else signal.Signals[own])
        if number:
            self.request.signal = own or signal.Signals(number).name
        return bool(number)


class ShortExecutions(keras.callbacks.Callback):
    """Divides long logging periods into executions of a few seconds, so that a request to stop does not wait long.

    The wrapped callbacks see a period as one execution, as if it had not been divided. If a stop is requested within a
    period, they see an execution of fewer updates.

    Args:
        callbacks: the callbacks to wrap.
        stop: the callback that is asked after every execution whether to stop.
        period_end: returns the step at which a period ends, given the step at which it begins.
        first_step: updates done before.
        clock: monotonic clock in seconds; tests replace it.
    """

    def __init__(
        self,
        callbacks: Sequence[keras.callbacks.Callback],
        stop: StopWhenRequested,
        period_end: Callable[[int], int],
        first_step: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._callbacks = list(callbacks)
        self._stop = stop
        self._period_end = period_end
        self._first_step = self._step = first_step
        self._end = period_end(first_step)  # of the period
        self._clock = clock
        self._begins_period = True
        self._length = 0  # of the execution

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        self._stop.set_model(model)
        self._all = keras.callbacks.CallbackList(self._callbacks, model=model)

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._set_length(1)  # the first one compiles
        self._all.on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._all.on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._begins_period:
            self._all.on_train_batch_begin(batch, logs)
            self._begins_period = False
        self._started = self._clock()

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        seconds = self._clock() - self._started
        self._step = self._first_step + batch + 1
        ended = self._step == self._end
        if ended:
            self._end_period(batch, logs)
            self._end = self._period_end(self._step)
        self._stop.on_train_batch_end(batch, logs)
        if self.model.stop_training and not ended:
            self._end_period(batch, logs)
        allowed = int(EXECUTION_SECONDS / max(seconds / self._length, 1e-9))
        self._set_length(min(2 * self._length, allowed))

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._all.on_epoch_end(epoch, logs)

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._all.on_train_end(logs)

    def _end_period(self, batch: int, logs: Optional[Dict[str, Any]]) -> None:
        self._begins_period = True
        self._all.on_train_batch_end(batch, logs)

    def _set_length(self, length: int) -> None:
        """Set the length of the next execution, which ends with the period at the latest; all processes agree on it."""
        length = self._stop.maximum(max(min(length, self._end - self._step), 1))
        if length != self._length:
            self.model.steps_per_execution = length
        self._length = length
