"""What ``typings/`` says of Graphcore's packages, read with ``ast``: functions, classes, enumerations, settings."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any, NamedTuple

TYPINGS = Path(__file__).parents[3] / "typings"
PUBLISHED = ("tensorflow/python/ipu", "ipu_tensorflow_addons", "keras/ipu", "popdist")


class PublishedClass(NamedTuple):
    """A class: its methods, its bases, and what stands in its body as ``name = ...`` or ``name: type``."""

    methods: dict[str, inspect.Signature]
    bases: list[str]
    members: list[str]
    settings: dict[str, tuple[str, str]]  # name → type, default as text

    @property
    def is_enumeration(self) -> bool:
        return "Enum" in self.bases or bool(self.members and not self.methods)


class PublishedModule(NamedTuple):
    functions: dict[str, inspect.Signature]
    classes: dict[str, PublishedClass]


def published_modules() -> dict[str, PublishedModule]:
    """By dotted name, packages too."""
    found = {}
    for root in PUBLISHED:
        for path in sorted((TYPINGS / root).rglob("*.pyi")):
            parts = path.relative_to(TYPINGS).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = read(path.read_text(encoding="utf-8"))
    return found


def read(source: str) -> PublishedModule:
    tree, lines = ast.parse(source), source.splitlines()
    functions = {node.name: signature(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: published_class(node, lines) for node in tree.body if isinstance(node, ast.ClassDef)}
    return PublishedModule(functions, classes)


def published_class(node: ast.ClassDef, lines: list[str]) -> PublishedClass:
    methods = {part.name: signature(part) for part in node.body if isinstance(part, ast.FunctionDef)}
    members = [part.targets[0].id for part in node.body if isinstance(part, ast.Assign)]
    settings = {
        part.target.id: (ast.unparse(part.annotation), lines[part.lineno - 1].partition("#")[2].strip())
        for part in node.body
        if isinstance(part, ast.AnnAssign)
    }
    return PublishedClass(methods, [ast.unparse(base) for base in node.bases], members, settings)


def signature(node: ast.FunctionDef) -> inspect.Signature:
    """Names, kinds and whether there is a default; static methods and methods keep their first argument."""
    kinds, spec, parameters = inspect.Parameter, node.args, []
    names = [argument.arg for argument in [*spec.posonlyargs, *spec.args]]
    defaults: list[Any] = [kinds.empty] * (len(names) - len(spec.defaults)) + [value(part) for part in spec.defaults]
    parameters += [kinds(name, kinds.POSITIONAL_OR_KEYWORD, default=d) for name, d in zip(names, defaults, strict=True)]
    if spec.vararg:
        parameters.append(kinds(spec.vararg.arg, kinds.VAR_POSITIONAL))
    parameters += [
        kinds(argument.arg, kinds.KEYWORD_ONLY, default=kinds.empty if default is None else value(default))
        for argument, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
    ]
    if spec.kwarg:
        parameters.append(kinds(spec.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(parameters)


def value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ...
