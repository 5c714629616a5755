"""Reads Graphcore's packages from ``typings/`` with ``ast``: functions, classes, enumerations, settings."""

from __future__ import annotations

import ast
import functools
import inspect
from typing import Any, Dict, List, NamedTuple, Tuple

from tests import ROOT

TYPINGS = ROOT / "typings"
PUBLISHED = ("tensorflow/python/ipu", "ipu_tensorflow_addons", "keras/ipu", "popdist")


class PublishedClass(NamedTuple):
    """A class: its methods, its bases, and the lines ``name = ...`` or ``name: type`` in its body."""

    methods: Dict[str, inspect.Signature]
    bases: List[str]
    members: List[str]
    settings: Dict[str, Tuple[str, str]]  # name → type, default as text

    @property
    def is_enumeration(self) -> bool:
        return "Enum" in self.bases or bool(self.members and not self.methods)


class PublishedModule(NamedTuple):
    functions: Dict[str, inspect.Signature]
    classes: Dict[str, PublishedClass]


@functools.lru_cache(maxsize=1)
def published_modules() -> dict[str, PublishedModule]:
    """Return the modules and packages by dotted name."""
    modules = {}
    for root in PUBLISHED:
        for path in sorted((TYPINGS / root).rglob("*.pyi")):
            parts = path.relative_to(TYPINGS).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = read(path.read_text(encoding="utf-8"))
    return modules


def read(source: str) -> PublishedModule:
    tree = ast.parse(source)
    functions = {node.name: signature(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: published_class(node, source) for node in tree.body if isinstance(node, ast.ClassDef)}
    return PublishedModule(functions, classes)


def published_class(node: ast.ClassDef, source: str) -> PublishedClass:
    lines, functions = source.splitlines(), [part for part in node.body if isinstance(part, ast.FunctionDef)]
    methods = {part.name: signature(part) for part in functions if "property" not in names(part.decorator_list)}
    members = [part.targets[0].id for part in node.body if isinstance(part, ast.Assign)]
    settings = {}
    for part in node.body:
        if isinstance(part, ast.AnnAssign):
            default = lines[part.lineno - 1].partition("#")[2].strip()
            settings[part.target.id] = (ast.get_source_segment(source, part.annotation), default)
    return PublishedClass(methods, names(node.bases), members, settings)


def names(nodes: list[ast.expr]) -> list[str]:
    return [node.id for node in nodes if isinstance(node, ast.Name)]


def signature(node: ast.FunctionDef) -> inspect.Signature:
    """Return names, kinds and presence of defaults; static methods and methods keep their first argument."""
    kinds, spec, parameters = inspect.Parameter, node.args, []
    names = [argument.arg for argument in [*spec.posonlyargs, *spec.args]]
    defaults: list[Any] = [kinds.empty] * (len(names) - len(spec.defaults)) + [value(part) for part in spec.defaults]
    parameters += [kinds(name, kinds.POSITIONAL_OR_KEYWORD, default=d) for name, d in zip(names, defaults)]
    if spec.vararg:
        parameters.append(kinds(spec.vararg.arg, kinds.VAR_POSITIONAL))
    parameters += [
        kinds(argument.arg, kinds.KEYWORD_ONLY, default=kinds.empty if default is None else value(default))
        for argument, default in zip(spec.kwonlyargs, spec.kw_defaults)
    ]
    if spec.kwarg:
        parameters.append(kinds(spec.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(parameters)


def value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ...
