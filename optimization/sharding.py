"""Optimizer state in R shards, one in each process (Rajbhandari et al. 2020, ZeRO stage 1, arXiv 1910.02054).

Every variable is flattened, filled up with zeros to a multiple of R, and cut into R equal parts. A process keeps the
moments of its part of each variable, computes the new weights of that part, and gets those of the other parts from
their processes. Norms of whole layers are roots of sums of squares over all parts, so LAMB's are exact.

R processes · n elements of a variable's part
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

import numpy as np

from keras_extensions.backend import tf

PIECE = 1 << 24  # elements of a process that are exchanged at once


@dataclasses.dataclass(frozen=True)
class Shards:
    """The part of this process, and the way to the others.

    Attributes:
        count: R.
        index: of the part that is this process'.
        total: sum of a flat float32 tensor over all processes.
        gathered: a flat tensor (n,) of every process, in their order: (R·n,).
    """

    count: int
    index: int
    total: Callable[[tf.Tensor], tf.Tensor]
    gathered: Callable[[tf.Tensor], tf.Tensor]

    def length(self, variable: tf.Variable) -> int:
        """n, elements of each part of a variable."""
        return -(-int(np.prod(variable.shape)) // self.count)

    def own(self, whole: tf.Tensor) -> tf.Tensor:
        """The part (n,) of a tensor of static shape that is this process'."""
        flat = tf.reshape(whole, [-1])
        length = -(-flat.shape[0] // self.count)
        begin = min(self.index * length, flat.shape[0])
        end = min(begin + length, flat.shape[0])
        return tf.pad(flat[begin:end], [[0, length - (end - begin)]])

    def norms(self, parts: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        """Euclidean norms of whole tensors, from the parts (n,) of each that are this process'."""
        if not parts:
            return []
        squares = tf.stack([tf.reduce_sum(tf.square(part)) for part in parts])
        return tf.unstack(tf.sqrt(self.total(squares)), len(parts))

    def whole(self, parts: Sequence[tf.Tensor], shapes: Sequence[tf.TensorShape]) -> List[tf.Tensor]:
        """Tensors of these shapes, from the parts (n,) of each, all of one dtype, that are this process'."""
        joined: List[tf.Tensor] = []
        for piece in pieces([part.shape[0] for part in parts]):
            sizes = [parts[number].shape[0] for number in piece]
            rows = tf.reshape(self.gathered(tf.concat([parts[number] for number in piece], 0)), (self.count, -1))
            for number, columns in zip(piece, tf.split(rows, sizes, axis=1)):
                flat = tf.reshape(columns, [-1])[: shapes[number].num_elements()]
                joined.append(tf.reshape(flat, shapes[number]))
        return joined


class ShardStep(NamedTuple):
    """An update that is known for a part of a variable, all but the learning rate of the layer.

    Attributes:
        variable: what is updated.
        weights: its own part (n,), float32.
        direction: to be taken off, times the learning rate.
    """

    variable: tf.Variable
    weights: tf.Tensor
    direction: tf.Tensor


class Parts:
    """Wholes of the parts that a sharded optimizer keeps, for checkpoints; see ``checkpoints.state.Parts``.

    Args:
        shards: of the optimizer.
        shapes: of the whole of each part.
    """

    def __init__(self, shards: Shards, parts: Sequence[tf.Variable], shapes: Sequence[tf.TensorShape]) -> None:
        self._shards = shards
        self._shapes = {part.ref(): shape for part, shape in zip(parts, shapes)}
        self._gathered: Dict[int, Any] = {}

    def whole(self, variable: tf.Variable) -> np.ndarray:
        """The whole that a variable is a part of, or its value."""
        shape = self._shapes.get(variable.ref())
        if shape is None:
            return variable.numpy()
        return self._joined(variable.read_value()).numpy()[: shape.num_elements()].reshape(shape)

    def _joined(self, part: tf.Tensor) -> tf.Tensor:
        """The parts (n,) of all processes, (R·n,); by one function for each n, as TensorFlow warns of one for many."""
        length = part.shape[0]
        if length not in self._gathered:
            self._gathered[length] = tf.function(functools.partial(self._shards.gathered), autograph=False)
        return self._gathered[length](part)

    def blank(self, variable: tf.Variable) -> np.ndarray:
        """Zeros of the whole's shape."""
        return np.zeros(self._shapes.get(variable.ref(), variable.shape), variable.dtype.as_numpy_dtype)

    def own(self, variable: tf.Variable, whole: np.ndarray) -> np.ndarray:
        """The part of the whole that belongs into the variable."""
        return self._shards.own(tf.constant(whole)).numpy() if variable.ref() in self._shapes else whole


class Underway:
    """What an optimizer remembers beside its variables: in no list of its own, which Keras would put into checkpoints.

    Attributes:
        shapes: of the variables that it updates.
        steps: of the update that is being made, of the variables seen so far.
        moved: the operations that stored the last moments.
    """

    def __init__(self) -> None:
        self.shapes: List[tf.TensorShape] = []
        self.begin()

    def begin(self) -> None:
        """An update begins."""
        self.steps: List[ShardStep] = []
        self.moved: List[Any] = []


def pieces(lengths: Sequence[int], limit: int = PIECE) -> List[List[int]]:
    """Numbers of consecutive tensors that are exchanged together: of at most ``limit`` in all, or one tensor.

    Example:
        >>> pieces([4, 4, 9, 1], limit=9)
        [[0, 1], [2], [3]]
    """
    found: List[List[int]] = []
    filled = limit + 1
    for number, length in enumerate(lengths):
        if filled + length > limit:
            found.append([])
            filled = 0
        found[-1].append(number)
        filled += length
    return found
