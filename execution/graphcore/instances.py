"""The processes that PopRun started, which it calls instances.

They agree through PopDist's collectives over the hosts. Gradients are no concern here: the IPUs exchange those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional

from execution.software.cluster.membership import Membership
from execution.software.cluster.processes import Processes
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


class Instances(Processes):
    """All instances of a run, as one of them sees them; instance 0 is the chief, which alone writes files."""

    def __init__(self, collectives: Any) -> None:
        names = tuple(f"instance {number}" for number in range(collectives.count))
        super().__init__(Membership(names, collectives.index))
        self.exchange_by(collectives)

    def lost(self, error: Exception) -> Optional[str]:
        return None  # PopRun says so itself, and ends all instances
