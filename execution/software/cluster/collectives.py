"""Sums and gatherings of tensors over processes, by TensorFlow's own collective operations.

Each operation has a key, the same on all processes, by which TensorFlow finds what belongs together. Keys are given in
the order in which operations are made, so every process must make them in the same order; all do, as they run the same
program.

R processes
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from keras_extensions.backend import tf

GROUP = 1000  # keys of groups begin here; a group is one device of each process
DEVICES = 100  # of one kind in a process at most
RING, NCCL = "ring", "nccl"  # as TensorFlow's runtime spells them; what it does not know is a ring to it
BUCKET_BYTES = 64 << 20


class Bucket(NamedTuple):
    """Tensors that are reduced as one.

    Attributes:
        device: the device of this process where they are.
        members: their places in the list of all.
    """

    device: str
    members: List[int]


class Collectives:
    """Operations over all processes of a run.

    Args:
        count: R.
        index: the number of this process.
    """

    def __init__(self, count: int, index: int) -> None:
        self.count = count
        self.index = index
        self._made = 0
        self.largest = tf.function(self._largest, autograph=False)  # one operation, so that all calls have one key

    def total(self, values: tf.Tensor) -> tf.Tensor:
        """The sum of a flat tensor over all processes, in the host's memory."""
        with tf.device("/CPU:0"):
            return self._reduced(values, "/CPU:0")

    def _largest(self, values: tf.Tensor) -> tf.Tensor:
        """The largest of each element over all processes."""
        with tf.device("/CPU:0"):
            return self._reduced(values, "/CPU:0", "Max")

    def gathered(self, values: tf.Tensor) -> tf.Tensor:
        """A flat tensor (n,) of each process, in the order of their numbers: (R·n,), in the host's memory."""
        if values.dtype == tf.bfloat16:  # which TensorFlow does not gather; nothing is lost on the way
            return tf.cast(self.gathered(tf.cast(values, tf.float32)), tf.bfloat16)
        self._made += 1
        with tf.device("/CPU:0"):
            gathered = tf.raw_ops.CollectiveGatherV2(
                input=values,
                group_size=self.count,
                group_key=GROUP,
                instance_key=GROUP + self._made,
                ordering_token=[],
                communication_hint=RING,
            )
        return tf.ensure_shape(gathered, [None if values.shape[0] is None else self.count * values.shape[0]])

    def totals(self, tensors: Dict[str, tf.Tensor]) -> Dict[str, tf.Tensor]:
        """The sums of named float32 scalars over all processes, in one operation."""
        names = sorted(tensors)
        sums = tf.unstack(self.total(tf.stack([tf.cast(tensors[name], tf.float32) for name in names])), len(names))
        return dict(zip(names, sums))

    def sums(self, tensors: Sequence[tf.Tensor], devices: Sequence[str]) -> List[tf.Tensor]:
        """The sum of each tensor over all processes, in few large operations.

        Args:
            tensors: float32, of static shapes.
            devices: of each tensor.
        """
        reduced: Dict[int, tf.Tensor] = {}
        before: List[tf.Tensor] = []
        for bucket in buckets([tensor.shape.num_elements() * 4 for tensor in tensors], devices):
            # One after the other: NCCL wants the same order on all processes.
            with tf.device(bucket.device), tf.control_dependencies(before):
                members = [tensors[member] for member in bucket.members]
                flat = self._reduced(tf.concat([tf.reshape(member, [-1]) for member in members], 0), bucket.device)
                parts = tf.split(flat, [member.shape.num_elements() for member in members])
                for number, member, part in zip(bucket.members, members, parts):
                    reduced[number] = tf.reshape(part, member.shape)
            before = [flat]
        return [reduced[number] for number in range(len(tensors))]

    def _reduced(self, values: tf.Tensor, device: str, operation: str = "Add") -> tf.Tensor:
        self._made += 1
        kind, group = _group(device)
        return tf.raw_ops.CollectiveReduceV2(
            input=values,
            group_size=self.count,
            group_key=group,
            instance_key=GROUP + self._made,
            ordering_token=[],
            merge_op=operation,
            final_op="Id",
            communication_hint=NCCL if kind == "GPU" else RING,
        )


def _group(device: str) -> Tuple[str, int]:
    """Kind of a device, and the key of the group of the devices of this number on all processes."""
    spec = tf.DeviceSpec.from_string(device)
    kind, number = spec.device_type or "CPU", spec.device_index or 0
    return kind, GROUP + number + (DEVICES if kind == "GPU" else 0)


def buckets(sizes: Sequence[int], devices: Sequence[str], limit: int = BUCKET_BYTES) -> List[Bucket]:
    """Tensors in buckets of one device each and, but for single tensors that are larger, of at most ``limit`` bytes.

    Args:
        sizes: bytes of each tensor.
        devices: of each tensor.

    Example:
        >>> [bucket.members for bucket in buckets([4, 4, 9, 1], ["a", "a", "b", "a"], limit=9)]
        [[0, 1, 3], [2]]
    """
    made: List[Bucket] = []
    open_buckets: Dict[str, Any] = {}
    for number, (size, device) in enumerate(zip(sizes, devices)):
        bucket, filled = open_buckets.get(device, (None, 0))
        if bucket is None or filled + size > limit:
            bucket, filled = Bucket(device, []), 0
            made.append(bucket)
        bucket.members.append(number)
        open_buckets[device] = (bucket, filled + size)
    return made
