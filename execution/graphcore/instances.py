"""The processes that PopRun started, which it calls instances.

They agree through PopDist's collectives over the hosts. Gradients are no concern here: the IPUs exchange those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from keras_extensions.backend import tf


@dataclass(frozen=True)
class HostCollectives:
    """Operations on the tensors of all instances.

    Attributes:
        count: number of instances.
        index: the number of this one.
        total: the sum of a tensor over all instances.
        gathered: the tensors of all instances, stacked.
    """

    count: int
    index: int
    total: Callable[[tf.Tensor], tf.Tensor]
    gathered: Callable[[tf.Tensor], tf.Tensor]

    def largest(self, values: tf.Tensor) -> tf.Tensor:
        """The largest of each element over all instances."""
        return tf.reduce_max(self.gathered(values), axis=0)
