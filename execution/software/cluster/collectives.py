"""Sums, maxima and concatenations of tensors over processes, by TensorFlow's collective operations.

TensorFlow matches the operations of different processes by a key. Keys are numbered in the order in which operations
are created, so every process must create them in the same order.

R  number of processes
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Sequence, Tuple

from keras_extensions.backend import tf
from optimization.sharding import pieces

GROUP = 1000  # first group key; a group is one device of each process
MAX_DEVICES = 100  # of one kind in a process
RING, NCCL = "ring", "nccl"  # TensorFlow's names; unknown names would select a ring
BUCKET_BYTES = 64 << 20


class Bucket(NamedTuple):
    """Tensors, by their index in the list of all, that are reduced in one operation."""

    device: str
    members: List[int]


class Collectives:
    """Collective operations over all ``count`` processes of a run, of which this one has the number ``index``."""

    def __init__(self, count: int, index: int) -> None:
        self.count = count
        self.index = index
        self._created = 0  # operations
        # The element-wise maximum over all processes; a single operation, so that all calls share one key.
        self.all_reduce_max = tf.function(lambda values: self._all_reduce(values, "/CPU:0", "Max"), autograph=False)

    def all_reduce_sum(self, values: tf.Tensor) -> tf.Tensor:
        """Return the sum of a flat tensor over all processes, in host memory."""
        return self._all_reduce(values, "/CPU:0")

    def all_gather(self, values: tf.Tensor) -> tf.Tensor:
        """Concatenate a flat tensor (n,) of every process in the order of their numbers: (R·n,), in host memory."""
        if values.dtype == tf.bfloat16:  # TensorFlow cannot gather this type; float32 represents it exactly
            return tf.cast(self.all_gather(tf.cast(values, tf.float32)), tf.bfloat16)
        self._created += 1
        with tf.device("/CPU:0"):
            gathered = tf.raw_ops.CollectiveGatherV2(
                input=values,
                group_size=self.count,
                group_key=GROUP,
                instance_key=GROUP + self._created,
                ordering_token=[],
                communication_hint=RING,
            )
        return tf.ensure_shape(gathered, [None if values.shape[0] is None else self.count * values.shape[0]])

    def all_reduce_scalars(self, tensors: Dict[str, tf.Tensor]) -> Dict[str, tf.Tensor]:
        """Return the sums of named float32 scalars over all processes, in one operation."""
        names = sorted(tensors)
        scalars = tf.stack([tf.cast(tensors[name], tf.float32) for name in names])
        return dict(zip(names, tf.unstack(self.all_reduce_sum(scalars), len(names))))

    def all_reduce_tensors(self, tensors: Sequence[tf.Tensor], devices: Sequence[str]) -> List[tf.Tensor]:
        """Return the sums of float32 tensors of static shapes over all processes, in few large operations."""
        reduced: Dict[int, tf.Tensor] = {}
        before: List[tf.Tensor] = []
        for bucket in buckets([tensor.shape.num_elements() * 4 for tensor in tensors], devices):
            # In sequence, because NCCL needs the same order in all processes.
            with tf.device(bucket.device), tf.control_dependencies(before):
                members = [tensors[member] for member in bucket.members]
                flat = self._all_reduce(tf.concat([tf.reshape(member, [-1]) for member in members], 0), bucket.device)
                parts = tf.split(flat, [member.shape.num_elements() for member in members])
                for number, member, part in zip(bucket.members, members, parts):
                    reduced[number] = tf.reshape(part, member.shape)
            before = [flat]
        return [reduced[number] for number in range(len(tensors))]

    def _all_reduce(self, values: tf.Tensor, device: str, operation: str = "Add") -> tf.Tensor:
        self._created += 1
        kind, group = _group(device)
        with tf.device(device):
            return tf.raw_ops.CollectiveReduceV2(
                input=values,
                group_size=self.count,
                group_key=group,
                instance_key=GROUP + self._created,
                ordering_token=[],
                merge_op=operation,
                final_op="Id",
                communication_hint=NCCL if kind == "GPU" else RING,
            )


def _group(device: str) -> Tuple[str, int]:
    spec = tf.DeviceSpec.from_string(device)
    kind, number = spec.device_type or "CPU", spec.device_index or 0
    return kind, GROUP + number + (MAX_DEVICES if kind == "GPU" else 0)


def buckets(sizes: Sequence[int], devices: Sequence[str], limit: int = BUCKET_BYTES) -> List[Bucket]:
    """Divide tensors into buckets of one device each and at most ``limit`` bytes; a larger tensor gets its own."""
    made: List[Bucket] = []
    for device in dict.fromkeys(devices):
        own = [number for number, other in enumerate(devices) if other == device]
        groups = pieces([sizes[number] for number in own], limit)
        made += [Bucket(device, [own[place] for place in group]) for group in groups]
    return made
