"""The processes that train one model together, from the point of view of one of them.

They occasionally exchange a few values; gradients are exchanged elsewhere. An object of the class is a single process,
or one of several that are connected already; a subclass connects them.
"""

from __future__ import annotations

import contextlib
import json
from types import MappingProxyType
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional, Sequence, TypeVar

import numpy as np

from keras_extensions.backend import tf
from utilities.errors import UserError
from utilities.progress import waiting

Value = TypeVar("Value")

PIECE = 1 << 24  # int32 values, 64 MB, that are broadcast at a time


class Processes:
    """All processes of a run.

    Every process must call :meth:`decide`, :meth:`broadcast`, :meth:`barrier` and :meth:`maximum` in the same order.

    Args:
        index: number of this process; process 0 is the chief.
        collectives: exchanges tensors between the processes; None for a single process, or before :meth:`join`.

    Attributes:
        run_name: name under which the run can be resumed, for messages; None while unknown.
        settings: what all processes must share, by name; set it before :meth:`join`, which may check it.
    """

    run_name: Optional[str] = None
    settings: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, count: int = 1, index: int = 0, collectives: Any = None) -> None:
        self.count = count
        self.index = index
        self.collectives = collectives

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run's files."""
        return self.index == 0

    @property
    def is_single(self) -> bool:
        return self.count == 1

    @property
    def is_waiting(self) -> bool:
        """Whether this process may wait for others, in a call that only these can end."""
        return False

    def join(self) -> None:
        """Connect to the other processes; must be called before TensorFlow computes anything."""

    def monitored(self) -> ContextManager[None]:
        """Within the block, which may wait for other processes, end this process if another one is gone."""
        return contextlib.nullcontext()

    def lost(self, error: Exception) -> Optional[str]:
        """Describe the processes that are gone if that is the cause of a TensorFlow error; otherwise return None."""
        return None

    def decide(self, make_decision: Callable[[], Value]) -> Value:
        """Return the chief's decision, which JSON can represent, in all processes, or raise its ``UserError``."""
        if self.collectives is None:
            return make_decision()
        message: Dict[str, Any] = {}
        failure: Optional[UserError] = None
        if self.is_chief:
            try:
                message = {"value": make_decision()}
            except UserError as error:
                message, failure = {"error": str(error)}, error
        received = json.loads(self._text_of(0, json.dumps(message)))
        if failure is not None:
            raise failure
        if "error" in received:
            raise UserError(f"process 0: {received['error']}")
        return received["value"]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Within the block, in which no process waits for another, an error in one process ends all of them.

        In the other processes it is a ``UserError`` with the message of that process.
        """
        if self.collectives is None:
            yield
            return
        failure: Optional[Exception] = None
        try:
            yield
        except Exception as error:
            failure = error
        with waiting("waiting for the other processes"):
            failed = self.maximum(0 if failure is None else self.index + 1) - 1
        if failed < 0:
            return
        text = self._text_of(failed, str(failure))
        raise failure or UserError(f"process {failed}: {text}")

    def _text_of(self, source: int, text: str) -> str:
        content = text.encode("utf-8", "replace")
        length = self.maximum(len(content) if self.index == source else 0)
        own = np.frombuffer(content.ljust(length)[:length], np.uint8)
        return self.broadcast([own], source)[0].tobytes().decode("utf-8").rstrip()

    def broadcast(self, arrays: Sequence[np.ndarray], source: int = 0) -> List[np.ndarray]:
        """Return the arrays of one process, of equal shapes and dtypes everywhere, in all processes, bit for bit."""
        if self.collectives is None:
            return list(arrays)
        sizes = [array.nbytes for array in arrays]
        words = np.zeros(-(-sum(sizes) // 4), np.int32)
        if self.index == source:
            words.view(np.uint8)[: sum(sizes)] = np.frombuffer(b"".join(array.tobytes() for array in arrays), np.uint8)
        for start in range(0, len(words), PIECE):
            with self.monitored():
                # The other processes add zeros.
                piece = self.collectives.all_reduce_sum(tf.constant(words[start : start + PIECE]))
                words[start : start + PIECE] = piece.numpy()
        ends = np.cumsum(sizes)
        received = words.view(np.uint8)
        return [
            received[end - size : end].view(array.dtype).reshape(array.shape) if size else np.array(array)
            for array, size, end in zip(arrays, sizes, ends)
        ]

    def maximum(self, value: int) -> int:
        if self.collectives is None:
            return value
        with self.monitored():
            return int(self.collectives.all_reduce_max(tf.constant([value], tf.int32))[0])

    def barrier(self) -> None:
        """Wait until every process has called this method."""
        self.maximum(0)


SINGLE_PROCESS = Processes()
