"""A copy of training's state in the host's memory, written to disk while training goes on.

``tf.train.Checkpoint.write`` reads the variables while it writes, so training would have to wait for the disk. Here the
values are copied first, which is all that training waits for. What is written later is a graph of objects with the same
names as the real ones, so ``tf.train.Checkpoint.read`` finds everything by its name, as if those had been written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple

import numpy as np

from keras_extensions.backend import tf


class Node(NamedTuple):
    """One object: the numbers of its children by name, and its value if it is a variable."""

    children: Dict[str, int]
    value: Any


class HostCopy:
    """The values of all variables below some objects, at the time of construction.

    Args:
        objects: name → layers, optimizers, variables or anything else that TensorFlow tracks.
    """

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self._nodes = _copy(tf.train.Checkpoint(**objects))

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return sum(node.value.nbytes for node in self._nodes if node.value is not None)

    def write(self, prefix: Path) -> None:
        """Write a TensorFlow checkpoint; may be called from any thread.

        Raises:
            OSError: the file system refused.
        """
        try:
            with tf.device("CPU:0"):
                _rebuilt(self._nodes).write(str(prefix))
        except tf.errors.OpError as error:
            raise OSError(" ".join(error.message.split())[:200]) from error


def _copy(root: Any) -> List[Node]:
    """Every object below ``root`` once, breadth first, ``root`` being number 0."""
    numbers = {id(root): 0}
    objects, nodes = [root], []
    for thing in objects:  # grows while it is walked
        is_variable = isinstance(thing, tf.Variable)
        children: Dict[str, int] = {}
        for name, child in {} if is_variable else tf.train.TrackableView.children(thing).items():
            if id(child) not in numbers:
                numbers[id(child)] = len(objects)
                objects.append(child)
            children[name] = numbers[id(child)]
        nodes.append(Node(children, np.asarray(thing.numpy()) if is_variable else None))
    return nodes


def _rebuilt(nodes: List[Node]) -> tf.train.Checkpoint:
    """Objects of the same names and values."""
    made: List[Any] = [tf.Module() if node.value is None else tf.Variable(node.value) for node in nodes]
    for thing, node in zip(made, nodes):
        for name, number in node.children.items():
            setattr(thing, name, made[number])
    return tf.train.Checkpoint(**{name: made[number] for name, number in nodes[0].children.items()})
