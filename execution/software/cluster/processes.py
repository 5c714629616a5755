"""The processes of a run that train together: how this one joins the others, and what all agree upon.

Values that processes exchange here are a few bytes now and then; gradients go another way, ``collectives.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional, Sequence, TypeVar

import numpy as np

from execution.software.cluster.collectives import Collectives
from execution.software.cluster.lookout import Lookout
from execution.software.cluster.lost import lost_replicas
from execution.software.cluster.membership import Membership, membership_of
from execution.software.cluster.waiting import wait_for_all
from keras_extensions.backend import tf
from utilities.errors import UserError

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
        self._lookout: Optional[Lookout] = None

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
        serve(self.membership)
        wait_for_all(self.membership)
        self._lookout = Lookout(self.membership)
        self.exchange_by(Collectives(self.count, self.index))
        self.meet()

    def exchange_by(self, collectives: Collectives) -> None:
        """Say how tensors go from process to process; ``join`` does."""
        self._collectives = collectives

    def goes_on_as(self, run: str) -> None:
        """Say under which name all goes on, for the line that tells of another process' end; the first one counts."""
        if self._lookout is not None:
            self._lookout.run = self._lookout.run or run

    def lost(self, error: Exception) -> Optional[str]:
        """Which processes are gone, in words, where that is what an error of TensorFlow's is about; None: it is not."""
        return lost_replicas(self.membership, error)

    def watched(self) -> ContextManager[None]:
        """Around what may have to wait for other processes: this one ends, too, where one of them is gone for good."""
        return contextlib.nullcontext() if self._lookout is None else self._lookout.kept()

    def largest(self, value: int) -> int:
        """The largest of all processes' values; every process must call it at the same place."""
        if self._collectives is None:
            return value
        with self.watched():
            return int(self._collectives.largest(tf.constant([value], tf.int32))[0])

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

        Raises:
            UserError: in all processes, where ``decide`` raises one.
        """
        if self._collectives is None:
            return decide()
        content: Dict[str, Any] = {}
        failure: Optional[UserError] = None
        if self.is_chief:
            try:
                content = {"value": decide()}
            except UserError as error:
                content, failure = {"error": str(error)}, error
        text = json.dumps(content).encode("utf-8")
        length = self.largest(len(text))
        told = json.loads(self.from_chief([np.frombuffer(text.ljust(length), np.uint8)])[0].tobytes())
        if failure is not None:
            raise failure
        if "error" in told:
            raise UserError(f"replica 0: {told['error']}")
        return told["value"]

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
            with self.watched():
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


def serve(membership: Membership) -> None:
    """Start TensorFlow's server in this process, through which the collectives of the others reach it.

    By the function that does only this. ``tf.distribute.MultiWorkerMirroredStrategy`` does the same, and starts a
    service that takes a process for dead that gets no processor time for ten seconds, which nothing can change; see
    ``lookout.py`` for what is here instead. Variables are plain ones on the devices of this process, kept equal because
    every process applies the same update.
    """
    with described_to_tensorflow(membership):
        tf.experimental.dtensor.initialize_accelerator_system("CPU", enable_coordination_service=False)
    if threading.current_thread() is threading.main_thread():
        # TensorFlow has put a handler of its own in the place of Python's, by which SIGTERM would be swallowed.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


@contextlib.contextmanager
def described_to_tensorflow(membership: Membership) -> Iterator[None]:
    """For the time of a block, the environment variables in which that function looks for who is who."""
    said = {
        "DTENSOR_JOBS": ",".join(membership.addresses),
        "DTENSOR_CLIENT_ID": str(membership.index),
        "DTENSOR_JOB_NAME": "worker",
    }
    before = {name: os.environ.get(name) for name in said}
    os.environ.update(said)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


ALONE = Processes()
