"""Finds the modules that a training run can reach, which must run on Python 3.8 and TensorFlow 2.6."""

from __future__ import annotations

import ast
import operator
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from tests import ROOT

ENTRIES = ("run_pretraining", "run_squad", "run_seq_classification", "graphcore.platform")
ANOTHER_PLATFORM = (
    "execution.software.platform",
    "pipeline.platform",
    "sparsity.machine_code",  # room: sparsity
)
SERVER = "tf.experimental.dtensor"  # of processes on stock TensorFlow


def training_path() -> Dict[str, Path]:
    """Return name → file for each module that is imported, at the top of a module or inside a function."""
    files: Dict[str, Path] = {}
    waiting = list(ENTRIES)
    while waiting:
        name = waiting.pop()
        file = find_file(name)
        if file is not None and name not in files and not name.startswith(ANOTHER_PLATFORM):
            files[name] = file
            waiting += imported(file)
    return dict(sorted(files.items()))


def find_file(module: str) -> Optional[Path]:
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def missing_names(file: Path, packages: Dict[str, Any]) -> List[str]:
    """Return names such as ``tf.data.Options`` in a file that these packages lack, except those tested by hasattr."""
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    calls = [node for node in nodes if isinstance(node, ast.Call) and dotted(node.func) == "hasattr"]
    optional = [SERVER, *(f"{dotted(call.args[0])}.{getattr(call.args[1], 'value', '')}" for call in calls)]
    missing = []
    for name in sorted({dotted(node) for node in nodes if isinstance(node, ast.Attribute)}):
        package, _, rest = name.partition(".")
        if package in packages and not any(f"{name}.".startswith(f"{one}.") for one in optional):
            try:
                operator.attrgetter(rest)(packages[package])
            except AttributeError:
                missing.append(f"{file}: {name}")
    return missing


def dotted(node: ast.AST) -> str:
    """Return the text of a dotted name; empty for any other expression."""
    if isinstance(node, ast.Attribute):
        below = dotted(node.value)
        return below and f"{below}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
