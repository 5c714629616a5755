"""A flat view of the schema, every leaf field by its dotted name, for flags, messages and the plan."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Dict, Iterator, List, Optional, Tuple, Type, Union

from pydantic import BaseModel
from typing_extensions import Annotated, Literal, get_args, get_origin

from utilities.config.schema import FILE_ONLY, TrainingConfig
from utilities.config.types import Kind

_KINDS = {bool: Kind("bool", "true or false"), str: Kind("str", "a text")}


@dataclass(frozen=True)
class Leaf:
    """One value of the config.

    Args:
        path: keys from the top, ``("global_batch", "replicas")``.
        kind: value type: how flags are read and messages worded.
        choices: allowed values where they are enumerated.
        optional: whether null is allowed.
    """

    path: Tuple[str, ...]
    kind: Kind
    default: Any
    description: str
    choices: Tuple[str, ...]
    optional: bool

    @property
    def name(self) -> str:
        """Dotted name, ``global_batch.replicas``."""
        return ".".join(self.path)

    @property
    def flag(self) -> str:
        """Command-line flag, ``--global-batch.replicas``."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class SectionInfo:
    """One object of the config; ``path`` is empty for the config itself."""

    path: Tuple[str, ...]
    description: str
    keys: Tuple[str, ...]


def _section_type(annotation: Any) -> Optional[Type[BaseModel]]:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _kind(annotation: Any, metadata: List[Any]) -> Tuple[Optional[Kind], Tuple[str, ...], bool]:
    """Value type, enumerated choices and whether null is allowed."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        return _kind(inner, more)
    if origin is Union:
        members = [m for m in get_args(annotation) if m is not type(None)]
        kind, choices, _ = _kind(members[0], [])
        return kind, choices, len(members) < len(get_args(annotation))
    for item in metadata:
        if isinstance(item, Kind):
            return item, (), False
    if origin is Literal:
        choices = tuple(str(c) for c in get_args(annotation))
        return Kind("choice", ("one of " if len(choices) > 1 else "") + ", ".join(choices)), choices, False
    return _KINDS.get(annotation), (), False


def _walk(model: Type[BaseModel], path: Tuple[str, ...], description: str) -> Iterator[Union[Leaf, SectionInfo]]:
    yield SectionInfo(path, description, tuple(model.model_fields))
    for name, field in model.model_fields.items():
        if not path and name in FILE_ONLY:
            continue
        section = _section_type(field.annotation)
        if section is not None:
            yield from _walk(section, (*path, name), field.description or "")
            continue
        kind, choices, optional = _kind(field.annotation, list(field.metadata))
        assert kind is not None and field.description, f"{model.__name__}.{name} lacks a kind or a description"
        yield Leaf((*path, name), kind, field.get_default(), field.description, choices, optional)


@lru_cache(maxsize=None)
def leaves() -> Dict[str, Leaf]:
    """Every leaf field by dotted name, in the schema's order (``extends`` and ``about`` left out)."""
    return {item.name: item for item in _walk(TrainingConfig, (), "Run") if isinstance(item, Leaf)}


@lru_cache(maxsize=None)
def sections() -> Dict[str, SectionInfo]:
    """Every section by dotted name; the config itself is ``""``."""
    found = [item for item in _walk(TrainingConfig, (), "Run") if isinstance(item, SectionInfo)]
    return {".".join(item.path): item for item in found}


def value_at(tree: Any, path: Tuple[str, ...]) -> Any:
    """The value at ``path`` of a config object or of nested dicts; None where a section is absent."""
    for key in path:
        if tree is None:
            return None
        tree = tree.get(key) if isinstance(tree, dict) else getattr(tree, key)
    return tree
