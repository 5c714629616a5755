"""Processes played by threads: what they exchange meets in this one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from execution.software.cluster.membership import Membership
from execution.software.cluster.processes import Processes
from keras_extensions.backend import tf
from optimization.sharding import Shards


class Meeting:
    """Where all come with their tensors, in the same order, and leave with those of all."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._barrier = threading.Barrier(count, timeout=60)
        self._given: dict[int, np.ndarray] = {}

    def exchanged(self, index: int, values: np.ndarray) -> list[np.ndarray]:
        self._given[index] = values
        self._barrier.wait()
        all_values = [self._given[number] for number in range(self.count)]
        self._barrier.wait()
        return all_values

    def shards(self, index: int) -> Shards:
        played = Played(self, index)
        return Shards(self.count, index, played.total, played.gathered)


class Played:
    """Stands for ``execution.software.cluster.collectives.Collectives``."""

    def __init__(self, meeting: Meeting, index: int) -> None:
        self.count = meeting.count
        self.index = index
        self._meeting = meeting

    def total(self, values: Any) -> Any:
        def added(given: list[np.ndarray]) -> np.ndarray:
            with np.errstate(invalid="ignore"):  # infinities of both signs
                return np.add.reduce(given, dtype=given[0].dtype)

        return self._met(values, added)

    def largest(self, values: Any) -> Any:
        return self._met(values, np.maximum.reduce)

    def gathered(self, values: Any) -> Any:
        return self._met(values, np.concatenate)

    def sums(self, tensors: Any, devices: Any) -> list[Any]:
        return [tf.ensure_shape(self.total(tensor), tensor.shape) for tensor in tensors]

    def _met(self, values: Any, together: Callable) -> Any:
        return tf.numpy_function(lambda own: together(self._meeting.exchanged(self.index, own)), [values], values.dtype)


def played(count: int, work: Callable[[Processes], Any]) -> list[Any]:
    """What the work of each process gives, or the exception that ends it."""
    meeting, results = Meeting(count), [None] * count
    addresses = tuple(f"host{number}:1" for number in range(count))

    def one(index: int) -> None:
        processes = Processes(Membership(addresses, index))
        processes.exchange_by(Played(meeting, index))
        try:
            results[index] = work(processes)
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=one, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
