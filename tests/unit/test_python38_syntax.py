"""Modules that a training run imports stay valid Python 3.8, which Graphcore's TensorFlow runs on.

``feature_version`` makes the parser refuse later syntax; what it lets pass (later library, types as values) is looked
for by hand.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "data_utils/classification",
    "data_utils/packing",
    "data_utils/records",
    "execution",
    "keras_extensions",
    "model",
    "optimization",
    "utilities",
)
BUILTIN_TYPES = {"list", "dict", "tuple", "set", "frozenset", "type"}  # take no [] at run time before Python 3.9
NEWER_METHODS = {"removeprefix", "removesuffix", "is_relative_to", "pairwise", "batched"}
NEWER_MODULES = {"tomllib", "zoneinfo", "graphlib"}


def sources() -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [*found, ROOT / "data_utils/tokenizer.py", *sorted(ROOT.glob("run_*.py"))]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_is_python_38(path: Path) -> None:
    assert newer_than_38(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "match x:\n    case 1: pass",
        "with (open('a') as a, open('b') as b): pass",
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
def test_newer_python_is_seen(source: str) -> None:
    assert newer_than_38(source)


@pytest.mark.parametrize(
    "source",
    [
        "from __future__ import annotations\ndef f(x: list[str] | None) -> dict[str, int]: ...",
        "flags = a | b",
        "from typing import List\nNames = List[str]",
        "table = {}\ntable[dict] = 1",
    ],
)
def test_python_38_is_let_pass(source: str) -> None:
    assert newer_than_38(source) == []


def newer_than_38(source: str) -> list[str]:
    """What Python 3.8 refuses in a module, as far as the text shows it."""
    try:
        tree = ast.parse(source, feature_version=(3, 8))
    except SyntaxError as error:
        return [f"line {error.lineno}: {error.msg}"]
    if any(isinstance(node, ast.With) for node in ast.walk(tree)):
        found = [f"line {line}: with in parentheses" for line in parenthesised_with(source, tree)]
    else:
        found = []
    return found + [f"line {node.lineno}: {ast.unparse(node)}" for node in evaluated(tree) if is_newer(node)]


def parenthesised_with(source: str, tree: ast.Module) -> Iterator[int]:
    """``with (a as b, c as d)``, which the parser of CPython 3.9 and later takes under any feature version."""
    lines = source.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and any(item.optional_vars for item in node.items):
            head = lines[node.lineno - 1][node.col_offset + len("with") :].lstrip()
            first = node.items[0].context_expr
            starts = lines[first.lineno - 1][: first.col_offset]
            if head.startswith("(") and (first.lineno != node.lineno or starts.rstrip().endswith("(")):
                yield node.lineno


def evaluated(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes that are evaluated when the module runs: annotations are not under ``from __future__ import
    annotations``, save those of classes with bases, which pydantic and NamedTuple evaluate."""
    lazy = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    fields = {
        statement.annotation
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.bases
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
    """Whether an evaluated node needs more than Python 3.8."""
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
    """Whether an operand of ``|`` can only be a type."""
    if isinstance(node, ast.Constant):
        return node.value is None
    return isinstance(node, ast.Name) and node.id in BUILTIN_TYPES | {"int", "str", "float", "bool", "bytes"}
