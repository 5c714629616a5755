"""Threads that replace processes, and exchange tensors within this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from execution.processes import Processes
from keras_extensions.backend import tf
from optimization.sharding import Shards


class Exchange:
    """Exchanges the tensors of all threads, which must call it in the same order."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._barrier = threading.Barrier(count, timeout=60)
        self._given: dict[int, np.ndarray] = {}

    def gather(self, index: int, values: np.ndarray) -> list[np.ndarray]:
        self._given[index] = values
        self._barrier.wait()
        all_values = [self._given[number] for number in range(self.count)]
        self._barrier.wait()
        return all_values

    def shards(self, index: int) -> Shards:
        collectives = FakeCollectives(self, index)
        return Shards(self.count, index, collectives.all_reduce_sum, collectives.all_gather)


class FakeCollectives:
    """The ``collectives`` of :class:`execution.processes.Processes`."""

    def __init__(self, exchange: Exchange, index: int) -> None:
        self.count = exchange.count
        self.index = index
        self._exchange = exchange

    def all_reduce_sum(self, values: Any) -> Any:
        def added(given: list[np.ndarray]) -> np.ndarray:
            with np.errstate(invalid="ignore"):  # infinities of both signs
                return np.add.reduce(given, dtype=given[0].dtype)

        return self._exchange_and(values, added)

    def all_reduce_max(self, values: Any) -> Any:
        return self._exchange_and(values, np.maximum.reduce)

    def all_gather(self, values: Any) -> Any:
        return self._exchange_and(values, np.concatenate)

    def all_reduce_tensors(self, tensors: Any, devices: Any) -> list[Any]:
        return [tf.ensure_shape(self.all_reduce_sum(tensor), tensor.shape) for tensor in tensors]

    def _exchange_and(self, values: Any, combine: Callable) -> Any:
        return tf.numpy_function(lambda own: combine(self._exchange.gather(self.index, own)), [values], values.dtype)


def run_as_processes(count: int, work: Callable[[Processes], Any]) -> list[Any]:
    """Return the result of each process, or the exception that ended it."""
    exchange, results = Exchange(count), [None] * count

    def one(index: int) -> None:
        processes = Processes(count, index, FakeCollectives(exchange, index))
        try:
            results[index] = work(processes)
        except Exception as error:
            results[index] = error

    in_threads(count, one)
    return results


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Call ``work`` with each number below ``count`` in a thread of this name, all at the same time."""
    threads = [threading.Thread(target=work, args=(number,), name=str(number)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
