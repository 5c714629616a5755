"""Shards the optimizer's state over R processes (Rajbhandari et al. 2020, ZeRO stage 1, arXiv 1910.02054).

Every variable is flattened, padded with zeros to a multiple of R, and cut into R shards. A process keeps the moments of
its shard of each variable, computes the new weights of that shard, and receives the other shards from their processes.
Norms of whole layers are roots of sums of squares over all shards, so LAMB stays exact.

Muon needs whole matrices. A process owns some of them: it keeps their moments and computes their new weights. The
matrices that all processes own in one round have the same shape, so they are exchanged like shards of one variable.

R  number of processes
n  elements of one shard of a variable
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from keras_extensions.backend import tf

PIECE = 1 << 24  # elements of each process that are exchanged in one operation


@dataclasses.dataclass(frozen=True)
class Shards:
    """The shard of this process among ``count``, and the operations that exchange flat tensors with the others.

    ``all_gather`` concatenates the tensors (n,) of all processes in their order: (R·n,).
    """

    count: int
    index: int
    all_reduce_sum: Callable[[tf.Tensor], tf.Tensor]
    all_gather: Callable[[tf.Tensor], tf.Tensor]

    def part(self, shape: tf.TensorShape, owner: Optional[int]) -> Sequence[int]:
        """Return the shape of this process' part of a variable: (n,) or, if one process owns all of it, all or (0,)."""
        if owner is not None:
            return shape if owner == self.index else [0]
        return [-(-shape.num_elements() // self.count)]

    def rounds(self, variables: Sequence[tf.Variable]) -> List[List[tf.Variable]]:
        """Divide variables into rounds of at most R with one shape; process i owns the i-th of each round."""
        same: Dict[Tuple[int, ...], List[tf.Variable]] = {}
        for variable in variables:
            same.setdefault(tuple(variable.shape), []).append(variable)
        return [
            members[start : start + self.count]
            for members in same.values()
            for start in range(0, len(members), self.count)
        ]

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
        return tf.unstack(tf.sqrt(self.all_reduce_sum(squares)), len(shards))

    def whole(self, shards: Sequence[tf.Tensor], shapes: Sequence[tf.TensorShape]) -> List[tf.Tensor]:
        """Return whole tensors of the given shapes from this process' shard (n,) of each, all of one dtype."""
        joined: List[tf.Tensor] = []
        for piece in pieces([shard.shape[0] for shard in shards]):
            sizes = [shards[number].shape[0] for number in piece]
            rows = tf.reshape(self.all_gather(tf.concat([shards[number] for number in piece], 0)), (self.count, -1))
            for number, columns in zip(piece, tf.split(rows, sizes, axis=1)):
                flat = tf.reshape(columns, [-1])[: shapes[number].num_elements()]
                joined.append(tf.reshape(flat, shapes[number]))
        return joined


class ShardedMoments:
    """Unsharded values of an optimizer's moments, for checkpoints.

    A process has a shard of each sharded moment, or owns all of it. Variables that are not sharded, such as the counter
    of updates, pass unchanged.
    """

    def __init__(self, shards: Shards, parts: Sequence[Tuple[tf.Variable, tf.TensorShape, Optional[int]]]) -> None:
        self._shards = shards
        self._places = {moment.ref(): (shape, owner) for moment, shape, owner in parts}
        self.is_sharded = bool(parts)
        # One function for each n, because TensorFlow warns of a function that it traces for many shapes.
        self._gathered: Dict[int, Any] = {}

    def whole(self, variable: tf.Variable) -> np.ndarray:
        """Return a variable's unsharded value; all processes must call this in the same order."""
        if variable.ref() not in self._places:
            return variable.numpy()
        shape, owner = self._places[variable.ref()]
        length = variable.shape[0] if owner is None else shape.num_elements()
        own = tf.reshape(variable, [-1]) if owner in (None, self._shards.index) else tf.zeros([length])
        if length not in self._gathered:
            self._gathered[length] = tf.function(functools.partial(self._shards.all_gather), autograph=False)
        start = (owner or 0) * length
        return self._gathered[length](own).numpy()[start : start + shape.num_elements()].reshape(shape)

    def blank(self, variable: tf.Variable) -> np.ndarray:
        """Return zeros with the shape and dtype of a variable's unsharded value."""
        shape, _ = self._places.get(variable.ref(), (variable.shape, None))
        return np.zeros(shape, variable.dtype.as_numpy_dtype)

    def own(self, variable: tf.Variable, whole: np.ndarray) -> np.ndarray:
        """Return this process' part of a variable's unsharded value."""
        if variable.ref() not in self._places:
            return whole
        owner = self._places[variable.ref()][1]
        if owner is None:
            return self._shards.own(tf.constant(whole)).numpy()
        return whole if owner == self._shards.index else np.zeros([0], whole.dtype)


UNSHARDED = ShardedMoments(Shards(1, 0, tf.identity, tf.identity), ())


def pieces(lengths: Sequence[int], limit: int = PIECE) -> List[List[int]]:
    """Divide consecutive tensors into groups of at most ``limit`` elements; a larger tensor gets its own group."""
    groups: List[List[int]] = []
    filled = limit + 1
    for number, length in enumerate(lengths):
        if filled + length > limit:
            groups.append([])
            filled = 0
        groups[-1].append(number)
        filled += length
    return groups
