"""A copy of training's state in the host's memory, written to disk while training goes on.

``tf.train.Checkpoint.write`` reads the variables while it writes, so training would have to wait for the disk. Here the
values are copied first, which is all that training waits for. What is written later is a graph of objects with the same
names as the real ones, so ``tf.train.Checkpoint.read`` finds everything by its name, as if those had been written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from keras_extensions.backend import tf


class Tracked(NamedTuple):
    """An object that TensorFlow tracks, and the numbers of its children by name."""

    thing: Any
    children: Dict[str, int]


class Node(NamedTuple):
    """The copy of one object: the numbers of its children by name, and its value if it is a variable."""

    children: Dict[str, int]
    value: Any


class HostCopy:
    """The values of all variables below some objects, at the time of construction.

    Args:
        objects: name → layers, optimizers, variables or anything else that TensorFlow tracks.
        value: of a variable; other than its own where it stands for something larger.
    """

    def __init__(self, objects: Mapping[str, Any], value: Optional[Callable[[tf.Variable], np.ndarray]] = None) -> None:
        read = value or value_of
        self._nodes = [
            Node(children, np.asarray(read(thing)) if isinstance(thing, tf.Variable) else None)
            for thing, children in tracked(objects)
        ]

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
                _joined(_made(self._nodes), self._nodes).write(str(prefix))
        except tf.errors.OpError as error:
            raise OSError(" ".join(error.message.split())[:200]) from error

    def restored(self, read: Callable[[tf.train.Checkpoint], None]) -> List[np.ndarray]:
        """Values of a checkpoint with the same names, in the order of ``variables_of``.

        Args:
            read: reads a checkpoint's values into these objects.
        """
        with tf.device("CPU:0"):
            made = _made(self._nodes)
            read(_joined(made, self._nodes))
        return [thing.numpy() for thing, node in zip(made, self._nodes) if node.value is not None]


def value_of(variable: tf.Variable) -> np.ndarray:
    """The present value of a variable."""
    return variable.numpy()


def variables_of(objects: Mapping[str, Any]) -> List[tf.Variable]:
    """The variables below some objects, each once, in the order in which ``HostCopy`` asks for them."""
    return [node.thing for node in tracked(objects) if isinstance(node.thing, tf.Variable)]


def tracked(objects: Mapping[str, Any]) -> List[Tracked]:
    """Every object below some others once, breadth first; number 0 stands for all of them."""
    root = tf.train.Checkpoint(**objects)
    numbers = {id(root): 0}
    things, found = [root], []
    for thing in things:  # grows while it is walked
        children: Dict[str, int] = {}
        for name, child in ({} if isinstance(thing, tf.Variable) else _children(thing)).items():
            if id(child) not in numbers:
                numbers[id(child)] = len(things)
                things.append(child)
            children[name] = numbers[id(child)]
        found.append(Tracked(thing, children))
    return found


def names_of(variables: Sequence[tf.Variable], objects: Mapping[str, Any]) -> List[str]:
    """By which name each variable is found below some objects, such as ``hid_0/layer/attention/qkv/kernel``."""
    found = tracked(objects)
    names = {0: ""}
    for number, (_, children) in enumerate(found):
        for name, child in children.items():
            names.setdefault(child, f"{names[number]}/{name}".lstrip("/"))
    by_identity = {id(node.thing): names[number] for number, node in enumerate(found)}
    return [by_identity[id(variable)] for variable in variables]


def _children(thing: Any) -> Mapping[str, Any]:
    if hasattr(tf.train, "TrackableView"):
        return tf.train.TrackableView.children(thing)
    # Before TensorFlow 2.10 there is no public way, and lists do not track what they hold before they are asked to.
    thing._maybe_initialize_trackable()
    return {child.name: child.ref for child in thing._checkpoint_dependencies}


def _made(nodes: List[Node]) -> List[Any]:
    """An object for each node, with its value."""
    return [tf.Module() if node.value is None else tf.Variable(node.value) for node in nodes]


def _joined(made: List[Any], nodes: List[Node]) -> tf.train.Checkpoint:
    """The objects under the names that the nodes have."""
    for thing, node in zip(made, nodes):
        for name, number in node.children.items():
            setattr(thing, name, made[number])
    return tf.train.Checkpoint(**{name: made[number] for name, number in nodes[0].children.items()})
