"""Replace the layers of one Keras model by others, weights by name, and account for every weight.

A :class:`Rule` says which class becomes which layer and which weight goes where. A :class:`Conversion` applies rules,
carries the weights once the new layers are built, and tells what it replaced, kept and dropped. No weight of the
source model is lost in silence: one that no rule mentions is an error.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Type

import numpy as np

from keras_extensions.backend import keras, tf


@dataclass(frozen=True)
class Carry:
    """One weight's way into a new layer.

    Attributes:
        target: attribute path of the weight on the new layer, such as ``"qkv.kernel"``.
        sources: attribute paths on the replaced layer; several are joined side by side along the last axis.
    """

    target: str
    sources: Tuple[str, ...]


@dataclass(frozen=True)
class Rule:
    """This class becomes that layer.

    Attributes:
        source: class of the layers that are replaced.
        build: makes the new layer from the old one.
        carries: where weights go. A target that the new layer lacks (a bias that is switched off) drops its sources.
    """

    source: Type[keras.layers.Layer]
    build: Callable[[Any], keras.layers.Layer]
    carries: Tuple[Carry, ...] = ()


class Route(NamedTuple):
    """A :class:`Carry` between two layers: the variables it leads from and to (None: the weight is dropped)."""

    carry: Carry
    sources: List[tf.Variable]
    target: Optional[tf.Variable]


@dataclass
class Row:
    """What became of the layers of one class."""

    source: str
    target: str
    count: int = 0
    weights_kept: List[str] = field(default_factory=list)
    weights_dropped: List[str] = field(default_factory=list)


class Conversion:
    """Applies rules to layers, one by one, then carries their weights.

    Example:
        >>> conversion = Conversion(rules)
        >>> pooler = conversion.replace(bert.pooler)
        >>> pooler(hidden)  # builds its weights
        >>> conversion.carry_weights(bert)
        >>> print(conversion.table())
    """

    def __init__(self, rules: Iterable[Rule]):
        self._rules: Dict[type, Rule] = {}
        self._replaced: List[Tuple[keras.layers.Layer, Optional[keras.layers.Layer], Tuple[Carry, ...]]] = []
        self.rows: List[Row] = []
        for rule in rules:
            self.add(rule)

    def add(self, rule: Rule) -> None:
        """One more rule, such as one that needs a layer which was made meanwhile."""
        self._rules[rule.source] = rule

    def replace(self, source: keras.layers.Layer) -> keras.layers.Layer:
        """The layer that takes the place of ``source``; its weights follow with ``carry_weights``."""
        rule = self._rules[type(source)]
        target = rule.build(source)
        self._replaced.append((source, target, rule.carries))
        return target

    def drop(self, source: keras.layers.Layer) -> None:
        """Leave ``source`` out of the new model, with all its weights."""
        carries = self._rules[type(source)].carries
        self._replaced.append((source, None, carries))

    def carry_weights(self, root: keras.layers.Layer) -> None:
        """Copy the weights of all replaced layers; every weight of ``root`` must be accounted for."""
        seen, filled = set(), set()
        for source, target, carries in self._replaced:
            kept, dropped = [], []
            for carry, sources, variable in routes(source, target, carries):
                seen.update(id(variable) for variable in sources)
                (dropped if variable is None else kept).extend(carry.sources)
                if variable is not None:
                    variable.assign(joined(sources))
                    # A layer that stores its matrix in another form says of which variables.
                    filled.update(id(part) for part in getattr(variable, "parts", [variable]))
            empty = [variable.name for variable in getattr(target, "weights", []) if id(variable) not in filled]
            assert not empty, f"no rule fills these weights: {', '.join(empty)}"
            self._record(source, target, kept, dropped)
        forgotten = [variable.name for variable in root.weights if id(variable) not in seen]
        assert not forgotten, f"no rule says where these weights go: {', '.join(forgotten)}"
        self._replaced.clear()  # or the source model would stay in memory as long as the conversion's table

    def routes(self) -> List[Route]:
        """The ways of all weights; known once the new layers are built and until ``carry_weights``."""
        return [route for replaced in self._replaced for route in routes(*replaced)]

    def _record(self, source: Any, target: Any, kept: Sequence[str], dropped: Sequence[str]) -> None:
        new = Row(type(source).__name__, "-" if target is None else type(target).__name__, 0, list(kept), list(dropped))
        for row in self.rows:
            if (row.source, row.target, row.weights_dropped) == (new.source, new.target, new.weights_dropped):
                row.count += 1
                return
        new.count = 1
        self.rows.append(new)

    def table(self) -> str:
        """What was replaced, kept and dropped, one line for each class of layer."""
        header = ("replaced", "by", "count", "weights kept", "weights dropped")
        lines = [header] + [
            (row.source, row.target, str(row.count), listed(row.weights_kept), listed(row.weights_dropped))
            for row in self.rows
        ]
        widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def routes(source: keras.layers.Layer, target: Optional[keras.layers.Layer], carries: Iterable[Carry]) -> List[Route]:
    """The ways of one layer's weights into the layer that takes its place."""
    return [
        Route(
            carry,
            [operator.attrgetter(path)(source) for path in carry.sources],
            None if target is None else find(target, carry.target),
        )
        for carry in carries
    ]


def find(layer: keras.layers.Layer, path: str) -> Optional[tf.Variable]:
    """The weight at an attribute path, or None where the layer has none there."""
    value: Any = layer
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def joined(variables: Sequence[tf.Variable]) -> np.ndarray:
    """The values of ``variables``, side by side along the last axis."""
    values = [variable.numpy() for variable in variables]
    return values[0] if len(values) == 1 else np.concatenate(values, axis=-1)


def listed(names: Sequence[str]) -> str:
    """Names in one cell of the table."""
    return ", ".join(names) or "-"
