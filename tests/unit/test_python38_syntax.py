"""Modules that a training run imports use nothing newer than Python 3.8, on which Graphcore's TensorFlow runs.

Ruff refuses newer syntax. This test searches for newer functions, and for types that are evaluated in a newer form;
`make ipu-test` also imports the modules on Python 3.8, if there is one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.graphcore.training_path import training_path

BUILTIN_TYPES = {"list", "dict", "tuple", "set", "frozenset", "type"}  # take no [] at run time before Python 3.9
NEWER_METHODS = {"removeprefix", "removesuffix", "is_relative_to", "pairwise", "batched"}
NEWER_MODULES = {"tomllib", "zoneinfo", "graphlib"}


def test_modules_of_a_training_run_need_no_newer_python() -> None:
    newer = {name: newer_than_38(file.read_text(encoding="utf-8")) for name, file in training_path().items()}
    assert len(newer) > 50 and {name: lines for name, lines in newer.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "Names = list[str]",
        "from __future__ import annotations\nclass Section(BaseModel):\n    names: list[str] = None",
        "Number = int | None",
        "from __future__ import annotations\nclass Section(BaseModel):\n    number: int | None = None",
        "def f(x: list[str]): pass",
        "'ab'.removeprefix('a')",
        "zip(a, b, strict=True)",
        "import tomllib",
        "@functools.cache\ndef f(): pass",
    ],
)
def test_newer_python_is_detected(source: str) -> None:
    assert newer_than_38(source)


def newer_than_38(source: str) -> list[str]:
    """Return what Python 3.8 lacks, as far as the text shows it."""
    return [f"line {node.lineno}: {ast.unparse(node)}" for node in evaluated(ast.parse(source)) if is_newer(node)]


def evaluated(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes that are evaluated when the module runs.

    Annotations are not under ``from __future__ import annotations``, but pydantic evaluates those of its models; a
    class with a base other than NamedTuple may be one.
    """
    lazy = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    fields = {
        statement.annotation
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} - {"NamedTuple"}
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        yield node
        for name, value in ast.iter_fields(node):
            children = value if isinstance(value, list) else [value]
            for child in children:
                annotation = name in ("annotation", "returns")
                if isinstance(child, ast.AST) and (not (annotation and lazy) or child in fields):
                    queue.append(child)


def is_newer(node: ast.AST) -> bool:
    """Return whether an evaluated node needs more than Python 3.8."""
    if isinstance(node, ast.Subscript):
        loaded = isinstance(node.ctx, ast.Load)
        return loaded and isinstance(node.value, ast.Name) and node.value.id in BUILTIN_TYPES
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return any(is_type(side) for side in (node.left, node.right))
    if isinstance(node, ast.Attribute):
        return node.attr in NEWER_METHODS or ast.unparse(node) == "functools.cache"
    if isinstance(node, ast.Call):
        is_zip = isinstance(node.func, ast.Name) and node.func.id == "zip"
        return is_zip and any(keyword.arg == "strict" for keyword in node.keywords)
    if isinstance(node, ast.Import):
        return any(alias.name in NEWER_MODULES for alias in node.names)
    return isinstance(node, ast.ImportFrom) and node.module in NEWER_MODULES


def is_type(node: ast.AST) -> bool:
    """Return whether an operand of ``|`` can only be a type."""
    if isinstance(node, ast.Constant):
        return node.value is None
    return isinstance(node, ast.Name) and node.id in BUILTIN_TYPES | {"int", "str", "float", "bool", "bytes"}
