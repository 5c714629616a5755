"""Replaces the layers of a Keras model by others, transfers their weights by name, and accounts for every weight.

A :class:`Rule` maps a layer class to a new layer and its weights. A :class:`Conversion` applies rules, transfers the
weights once the new layers are built, and lists what was replaced, kept and dropped. A weight of the source model that
no rule mentions is an error, so no weight is lost unnoticed.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple, Type

import numpy as np

from keras_extensions.backend import keras, tf


@dataclass(frozen=True)
class WeightMapping:
    """The transfer of a weight, by attribute paths such as ``qkv.kernel``; sources are joined on the last axis."""

    target: str
    sources: Tuple[str, ...]


@dataclass(frozen=True)
class Rule:
    """The replacement of the layers of a class.

    If a new layer lacks the target of a mapping (a disabled bias), its sources are dropped.
    """

    source: Type[keras.layers.Layer]
    build: Callable[[Any], keras.layers.Layer]
    mappings: Tuple[WeightMapping, ...] = ()


class ResolvedMapping(NamedTuple):
    """A mapping between two layers, with its source and target variables (None: the weight is dropped)."""

    mapping: WeightMapping
    sources: List[tf.Variable]
    target: Optional[tf.Variable]


@dataclass
class Row:
    """A row of the conversion table: the replacement of the layers of one class."""

    source: str
    target: str
    count: int
    weights_kept: List[str]
    weights_dropped: List[str]


class Conversion:
    """Applies rules to layers one by one, then transfers their weights."""

    def __init__(self, rules: Iterable[Rule]):
        self._rules: Dict[type, Rule] = {rule.source: rule for rule in rules}
        self._replaced: List[Tuple[keras.layers.Layer, Optional[keras.layers.Layer], Tuple[WeightMapping, ...]]] = []
        self.rows: List[Row] = []

    def add(self, rule: Rule) -> None:
        """Add a rule, such as one that needs a layer created in the meantime."""
        self._rules[rule.source] = rule

    def replace(self, source: keras.layers.Layer) -> keras.layers.Layer:
        """Return the layer that replaces ``source``; ``transfer_weights`` transfers its weights later."""
        rule = self._rules[type(source)]
        target = rule.build(source)
        self._replaced.append((source, target, rule.mappings))
        return target

    def drop(self, source: keras.layers.Layer) -> None:
        mappings = self._rules[type(source)].mappings
        self._replaced.append((source, None, mappings))

    def transfer_weights(self, root: keras.layers.Layer) -> None:
        """Copy the weights of all replaced layers, and check that every weight of ``root`` is accounted for."""
        seen: Set[int] = set()
        filled: Set[int] = set()
        for source, target, mappings in self._replaced:
            kept: List[str] = []
            dropped: List[str] = []
            for mapping, origins, variable in _resolved(source, target, mappings):
                seen.update(map(id, origins))
                if variable is None:
                    dropped += mapping.sources
                    continue
                kept += mapping.sources
                variable.assign(np.concatenate([origin.numpy() for origin in origins], axis=-1))
                # A layer that stores its matrix in several variables lists them.
                filled.update(map(id, getattr(variable, "parts", [variable])))
            empty = [variable.name for variable in getattr(target, "weights", []) if id(variable) not in filled]
            assert not empty, f"no rule fills these weights: {', '.join(empty)}"
            self._record(source, target, kept, dropped)
        forgotten = [variable.name for variable in root.weights if id(variable) not in seen]
        assert not forgotten, f"no rule maps these weights: {', '.join(forgotten)}"
        self._replaced.clear()  # frees the source model

    def resolved_mappings(self) -> List[ResolvedMapping]:
        """Return the mappings of all weights, once the new layers are built and before ``transfer_weights``."""
        return [mapping for replaced in self._replaced for mapping in _resolved(*replaced)]

    def _record(self, source: Any, target: Any, kept: List[str], dropped: List[str]) -> None:
        new = Row(type(source).__name__, "-" if target is None else type(target).__name__, 1, kept, dropped)
        for row in self.rows:
            if (row.source, row.target, row.weights_dropped) == (new.source, new.target, new.weights_dropped):
                row.count += 1
                return
        self.rows.append(new)


def _resolved(
    source: keras.layers.Layer, target: Optional[keras.layers.Layer], mappings: Iterable[WeightMapping]
) -> List[ResolvedMapping]:
    return [
        ResolvedMapping(
            mapping,
            [operator.attrgetter(path)(source) for path in mapping.sources],
            None if target is None else find(target, mapping.target),
        )
        for mapping in mappings
    ]


def find(layer: keras.layers.Layer, path: str) -> Optional[tf.Variable]:
    """Return the weight at an attribute path; None if there is none."""
    value: Any = layer
    for name in path.split("."):
        value = getattr(value, name, None)
    return value
