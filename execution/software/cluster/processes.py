"""The processes of a run that train together: how this one joins the others, and what all agree upon.

Values that processes exchange here are a few bytes now and then; gradients go another way, ``collectives.py``.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from typing import Any, Callable, List, Mapping, Optional, Sequence, TypeVar

import numpy as np

from execution.software.cluster.collectives import Collectives
from execution.software.cluster.membership import Membership, membership_of
from execution.software.cluster.waiting import waiting_told
from keras_extensions.backend import tf

Value = TypeVar("Value")

ONE = Membership()  # that is alone
PIECE = 1 << 24  # int32 values, 64 MB, that are sent at a time


class Processes:
    """All processes of a run, as one of them sees them.

    A process that is alone agrees with itself at once, and TensorFlow is left as it is.

    Args:
        membership: who is who.
    """

    def __init__(self, membership: Membership = ONE) -> None:
        self.membership = membership
        self._collectives: Optional[Collectives] = None
        self._largest: Any = None

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Processes:
        """The processes that the environment names; see :func:`membership_of`."""
        return cls(membership_of(environment))

    @property
    def count(self) -> int:
        """How many there are."""
        return self.membership.count

    @property
    def index(self) -> int:
        """The number of this one."""
        return self.membership.index

    @property
    def is_chief(self) -> bool:
        """Whether this process alone writes the run's files."""
        return self.index == 0

    @property
    def is_alone(self) -> bool:
        """Whether there is no other."""
        return self.count == 1

    @property
    def collectives(self) -> Optional[Collectives]:
        """How tensors are reduced over all processes; None where there is one only, or before ``join``."""
        return self._collectives

    def join(self) -> None:
        """Wait for all others, and connect with them; once in the life of a process.

        TensorFlow must not have computed anything before, and sees its devices under other names afterwards.
        """
        if self.is_alone or self._collectives is not None:
            return
        connect(self.membership)
        self._collectives = Collectives(self.count, self.index)
        self._largest = tf.function(self._collectives.largest, autograph=False)

    def largest(self, value: int) -> int:
        """The largest of all processes' values; every process must call it at the same place."""
        if self._collectives is None:
            return value
        return int(self._largest(tf.constant([value], tf.int32))[0])

    def any(self, condition: bool) -> bool:
        """Whether it holds for any process."""
        return bool(self.largest(int(condition)))

    def chief_says(self, condition: bool) -> bool:
        """Whether it holds for the chief."""
        return self.any(condition and self.is_chief)

    def meet(self) -> None:
        """Wait until every process has come to this place."""
        self.largest(0)

    def decided(self, decide: Callable[[], Value]) -> Value:
        """What the chief decides.

        Args:
            decide: called by the chief alone; gives something that JSON can hold.
        """
        if self._collectives is None:
            return decide()
        text = json.dumps(decide()).encode("utf-8") if self.is_chief else b""
        length = self.largest(len(text))
        return json.loads(self.from_chief([np.frombuffer(text.ljust(length), np.uint8)])[0].tobytes())

    def from_chief(self, arrays: Sequence[np.ndarray]) -> List[np.ndarray]:
        """The chief's arrays, to the bit.

        Args:
            arrays: of the same shapes and dtypes on all processes; the values of the others do not matter.
        """
        if self._collectives is None:
            return list(arrays)
        sizes = [array.nbytes for array in arrays]
        words = np.zeros(-(-sum(sizes) // 4), np.int32)
        if self.is_chief:
            words.view(np.uint8)[: sum(sizes)] = np.concatenate([_bytes(array) for array in arrays])
        for start in range(0, len(words), PIECE):
            piece = self._collectives.total(tf.constant(words[start : start + PIECE]))  # all others add zeros
            words[start : start + PIECE] = piece.numpy()
        ends = np.cumsum(sizes)
        flat = words.view(np.uint8)
        return [
            flat[end - size : end].view(array.dtype).reshape(array.shape) if size else np.array(array)
            for array, size, end in zip(arrays, sizes, ends)
        ]


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def connect(membership: Membership) -> None:
    """Start TensorFlow's server in this process, and wait until all processes have done so.

    The strategy is made for this alone: it configures TensorFlow's collectives and the service by which processes
    notice that another one is gone. Variables are not made under it: they are plain ones on the devices of this
    process, kept equal because every process applies the same update.
    """
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(membership.addresses)}),
        task_type="worker",
        task_id=membership.index,
        rpc_layer="grpc",
    )
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    chatter = logging.getLogger("tensorflow")
    level = chatter.level
    chatter.setLevel(logging.WARNING)  # else each process tells of its devices
    try:
        with waiting_told(membership):
            tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
    finally:
        chatter.setLevel(level)
    if threading.current_thread() is threading.main_thread():
        # TensorFlow has put a handler of its own in the place of Python's, by which SIGTERM would be swallowed.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


ALONE = Processes()
