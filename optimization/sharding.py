"""Shards the optimizer's state over R processes (Rajbhandari et al. 2020, ZeRO stage 1, arXiv 1910.02054).

Every variable is flattened, padded with zeros to a multiple of R, and cut into R shards. A process keeps the moments of
its shard of each variable, computes the new weights of that shard, and receives the other shards from their processes.
Norms of whole layers are roots of sums of squares over all shards, so LAMB stays exact.

R  number of processes
n  elements of one shard of a variable
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable, Dict, List, Sequence

import numpy as np

from keras_extensions.backend import tf

PIECE = 1 << 24  # elements of each process that are exchanged in one operation


@dataclasses.dataclass(frozen=True)
class Shards:
    """The shard of this process, and the operations that exchange shards with the other processes.

    Attributes:
        count: R.
        index: number of this process.
        total: returns the sum of a flat float32 tensor over all processes.
        gathered: concatenates a flat tensor (n,) of every process, in their order: (R·n,).
    """

    count: int
    index: int
    total: Callable[[tf.Tensor], tf.Tensor]
    gathered: Callable[[tf.Tensor], tf.Tensor]

    def length(self, variable: tf.Variable) -> int:
        """Return n for a variable."""
        return -(-int(np.prod(variable.shape)) // self.count)

    def own(self, whole: tf.Tensor) -> tf.Tensor:
        """Return this process' shard (n,) of a tensor of static shape."""
        flat = tf.reshape(whole, [-1])
        length = -(-flat.shape[0] // self.count)
        begin = min(self.index * length, flat.shape[0])
        end = min(begin + length, flat.shape[0])
        return tf.pad(flat[begin:end], [[0, length - (end - begin)]])

    def norms(self, shards: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        """Return the Euclidean norms of whole tensors, given this process' shard (n,) of each."""
        if not shards:
            return []
        squares = tf.stack([tf.reduce_sum(tf.square(shard)) for shard in shards])
        return tf.unstack(tf.sqrt(self.total(squares)), len(shards))

    def whole(self, shards: Sequence[tf.Tensor], shapes: Sequence[tf.TensorShape]) -> List[tf.Tensor]:
        """Return whole tensors of the given shapes.

        Args:
            shards: this process' shard (n,) of each tensor, all of one dtype.
            shapes: shape of each whole tensor.
        """
        joined: List[tf.Tensor] = []
        for piece in pieces([shard.shape[0] for shard in shards]):
            sizes = [shards[number].shape[0] for number in piece]
            rows = tf.reshape(self.gathered(tf.concat([shards[number] for number in piece], 0)), (self.count, -1))
            for number, columns in zip(piece, tf.split(rows, sizes, axis=1)):
                flat = tf.reshape(columns, [-1])[: shapes[number].num_elements()]
                joined.append(tf.reshape(flat, shapes[number]))
        return joined


class ShardedMoments:
    """Unsharded values of a sharded optimizer's moments, for checkpoints; see ``checkpoints.state.Parts``.

    Variables that are not sharded, such as the counter of updates, pass unchanged.

    Args:
        shards: the optimizer's shards.
        moments: its moments, each of shape (n,).
        shapes: unsharded shape of each moment.
    """

    def __init__(self, shards: Shards, moments: Sequence[tf.Variable], shapes: Sequence[tf.TensorShape]) -> None:
        self._shards = shards
        self._shapes = {moment.ref(): shape for moment, shape in zip(moments, shapes)}
        # One function for each n, because TensorFlow warns of a function that it traces for many shapes.
        self._gathered: Dict[int, Any] = {}

    def whole(self, variable: tf.Variable) -> np.ndarray:
        """Return a variable's unsharded value; all processes must call this in the same order."""
        shape = self._shapes.get(variable.ref())
        if shape is None:
            return variable.numpy()
        length = variable.shape[0]
        if length not in self._gathered:
            self._gathered[length] = tf.function(functools.partial(self._shards.gathered), autograph=False)
        return self._gathered[length](variable.read_value()).numpy()[: shape.num_elements()].reshape(shape)

    def blank(self, variable: tf.Variable) -> np.ndarray:
        """Return zeros with the shape and dtype of a variable's unsharded value."""
        return np.zeros(self._shapes.get(variable.ref(), variable.shape), variable.dtype.as_numpy_dtype)

    def own(self, variable: tf.Variable, whole: np.ndarray) -> np.ndarray:
        """Return this process' shard of a variable's unsharded value."""
        return self._shards.own(tf.constant(whole)).numpy() if variable.ref() in self._shapes else whole


def pieces(lengths: Sequence[int], limit: int = PIECE) -> List[List[int]]:
    """Divide consecutive tensors into groups of at most ``limit`` elements; a larger tensor gets its own group.

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
