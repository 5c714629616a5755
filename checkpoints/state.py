"""Copies the state of training to host memory and to checkpoints, and restores it.

``tf.train.Checkpoint.write`` reads the variables while it writes, so training would have to wait for the disk.
:class:`HostCopy` first copies the values, and training waits only for that. The copy is written later, as a graph of
objects with the same names as the real ones, in which ``tf.train.Checkpoint.read`` finds every value by its name.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from checkpoints.folder import OPTIMIZER, WEIGHTS, Checkpoint
from execution.processes import Processes
from keras_extensions.backend import keras, tf
from optimization.sharding import UNSHARDED, ShardedMoments, pieces
from utilities.errors import UserError, one_line
from utilities.files import disk_error

ORDER = "optimizer_order"  # key in the description: names of the weights in the order of the optimizer's moments
BROADCAST_BYTES = 1 << 26  # bytes that the chief broadcasts at a time


class TrainingState:
    """All state that training changes.

    Args:
        variables: the variables with which the optimizer was built; its moments are saved in their order.
        shards: access to the moments. If they are sharded over processes, all must copy the state at the same step.
    """

    def __init__(
        self,
        blocks: Sequence[keras.layers.Layer],
        optimizer: keras.optimizers.Optimizer,
        variables: Sequence[tf.Variable] = (),
        others: Optional[Mapping[str, Any]] = None,
        shards: ShardedMoments = UNSHARDED,
    ) -> None:
        self._weights = by_name(blocks)
        self._order = variable_names(variables, self._weights)
        self._optimizer = {**(others or {}), "optimizer": optimizer}
        self.shards = shards

    def copy(self) -> StateCopy:
        """Copy the present values, unsharded, to host memory."""
        moments = HostCopy(self._optimizer, self.shards.whole)
        return StateCopy(HostCopy(self._weights), moments, {ORDER: list(self._order)})

    def restore(self, checkpoint: Checkpoint) -> None:
        """Set all variables, which must exist, to the values of a checkpoint."""
        self._check_order(checkpoint)
        _read(tf.train.Checkpoint(**self._weights), checkpoint, checkpoint.weights)
        _read(tf.train.Checkpoint(**self._optimizer), checkpoint, checkpoint.folder / OPTIMIZER)

    def restore_on_all(self, checkpoint: Optional[Checkpoint], processes: Processes) -> None:
        """Set the variables of all processes to a checkpoint that only the chief reads; all processes must call this.

        Without a checkpoint, the others get the chief's present values.
        """
        if processes.is_single:
            if checkpoint is not None:
                self.restore(checkpoint)
            return
        weights, moments = _variables(self._weights), _variables(self._optimizer)
        if checkpoint is not None and processes.is_chief:
            self._check_order(checkpoint)
            _read(tf.train.Checkpoint(**self._weights), checkpoint, checkpoint.weights)
        values = [variable.numpy() for variable in weights] + self._whole_moments(moments, checkpoint, processes)
        for group in pieces([value.nbytes for value in values], BROADCAST_BYTES):
            received = processes.broadcast([values[number] for number in group])
            for number, value in zip(group, received):
                variable = [*weights, *moments][number]
                variable.assign(self.shards.own(variable, value))

    def _whole_moments(
        self, moments: Sequence[tf.Variable], checkpoint: Optional[Checkpoint], processes: Processes
    ) -> List[np.ndarray]:
        """Return the unsharded moments to broadcast; except on the chief, only shapes and dtypes matter."""
        if checkpoint is None:
            return [self.shards.whole(variable) for variable in moments]
        if not processes.is_chief:
            return [self.shards.blank(variable) for variable in moments]
        blank, prefix = HostCopy(self._optimizer, self.shards.blank), checkpoint.folder / OPTIMIZER
        return blank.read_values(lambda reader: _read(reader, checkpoint, prefix))

    def _check_order(self, checkpoint: Checkpoint) -> None:
        saved = (checkpoint.description or {}).get(ORDER, self._order)
        if saved != self._order:
            first = next(pair for pair in zip_longest(saved, self._order) if pair[0] != pair[1])
            raise UserError(
                f"{checkpoint.folder}: its optimizer's moments are those of a model that is built differently"
                f" ({first[0]} where {first[1]} is expected); start from its weights with pretrained_ckpt_path"
            )


class StateCopy(NamedTuple):
    """A copy of the state in host memory that any thread can write; ``description`` is added to checkpoint.json."""

    weights: HostCopy
    optimizer: HostCopy
    description: Dict[str, Any]

    def write_files(self, folder: Path) -> None:
        self.weights.write(folder / WEIGHTS)
        self.optimizer.write(folder / OPTIMIZER)


def load_weights(checkpoint: Checkpoint, blocks: Sequence[keras.layers.Layer]) -> None:
    """Set the weights of ``blocks`` from a checkpoint, which must have all of them in the same shapes."""
    _read(tf.train.Checkpoint(**by_name(blocks)), checkpoint, checkpoint.weights)


def by_name(blocks: Sequence[keras.layers.Layer]) -> Dict[str, keras.layers.Layer]:
    return {block.name: block for block in blocks}


def _read(reader: tf.train.Checkpoint, checkpoint: Checkpoint, prefix: Path) -> None:
    try:
        # expect_partial: TensorFlow must not warn of values that are not read, not even if reading fails.
        reader.read(str(prefix)).expect_partial().assert_existing_objects_matched()
    except (AssertionError, ValueError, IndexError, RuntimeError, tf.errors.OpError) as error:
        raise UserError(
            f"resume: {checkpoint.weights} does not fit the model of this config ({one_line(error, 300)}); use the"
            " bert_config that it was trained with"
        ) from error


Children = Dict[str, int]  # name → number of the child in the list of all objects


class HostCopy:
    """A copy of the values of all variables below some objects, made at construction."""

    def __init__(self, objects: Mapping[str, Any], read: Callable[[tf.Variable], np.ndarray] = UNSHARDED.whole) -> None:
        tracked = tracked_objects(objects)
        self._children = [children for _, children in tracked]
        self._values = [np.asarray(read(thing)) if isinstance(thing, tf.Variable) else None for thing, _ in tracked]

    def write(self, prefix: Path) -> None:
        """Write a TensorFlow checkpoint, from any thread."""
        try:
            with tf.device("CPU:0"):
                self._as_checkpoint(self._new_objects()).write(str(prefix))
        except tf.errors.OpError as error:
            raise disk_error(error.message) or OSError(one_line(error.message)) from error

    def read_values(self, read: Callable[[tf.train.Checkpoint], None]) -> List[np.ndarray]:
        """Return the values of a checkpoint with the same names, in the order of the copied variables."""
        with tf.device("CPU:0"):
            objects = self._new_objects()
            read(self._as_checkpoint(objects))
        return [thing.numpy() for thing, value in zip(objects, self._values) if value is not None]

    def _new_objects(self) -> List[Any]:
        return [tf.Module() if value is None else tf.Variable(value) for value in self._values]

    def _as_checkpoint(self, objects: List[Any]) -> tf.train.Checkpoint:
        for thing, children in zip(objects, self._children):
            for name, number in children.items():
                setattr(thing, name, objects[number])
        return tf.train.Checkpoint(**{name: objects[number] for name, number in self._children[0].items()})


def tracked_objects(objects: Mapping[str, Any]) -> List[Tuple[Any, Children]]:
    """List each object below some others once, breadth first, with its children; the first one is the common root."""
    root = tf.train.Checkpoint(**objects)
    numbers = {id(root): 0}
    things, tracked = [root], []
    for thing in things:  # grows during the loop
        children: Children = {}
        for name, child in ({} if isinstance(thing, tf.Variable) else _children(thing)).items():
            if id(child) not in numbers:
                numbers[id(child)] = len(things)
                things.append(child)
            children[name] = numbers[id(child)]
        tracked.append((thing, children))
    return tracked


def variable_names(variables: Sequence[tf.Variable], objects: Mapping[str, Any]) -> List[str]:
    """Return the name of each variable below some objects in a checkpoint, ``hid_0/layer/attention/qkv/kernel``."""
    tracked = tracked_objects(objects)
    names = {0: ""}
    for number, (_, children) in enumerate(tracked):
        for name, child in children.items():
            names.setdefault(child, f"{names[number]}/{name}".lstrip("/"))
    by_identity = {id(thing): names[number] for number, (thing, _) in enumerate(tracked)}
    return [by_identity[id(variable)] for variable in variables]


def _variables(objects: Mapping[str, Any]) -> List[tf.Variable]:
    return [thing for thing, _ in tracked_objects(objects) if isinstance(thing, tf.Variable)]


def _children(thing: Any) -> Mapping[str, Any]:
    if hasattr(tf.train, "TrackableView"):
        return tf.train.TrackableView.children(thing)
    # Before TensorFlow 2.10 there is no public way, and lists track their elements only on request.
    thing._maybe_initialize_trackable()
    return {child.name: child.ref for child in thing._checkpoint_dependencies}
