"""The modules of this project that a training run can reach: what must run on Python 3.8."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Dict, Iterator, Optional

ROOT = Path(__file__).parents[3]
ENTRIES = ("run_pretraining", "run_squad", "run_seq_classification", "execution.graphcore.platform")
ANOTHER_PLATFORM = ("execution.software.platform",)


def training_path() -> Dict[str, Path]:
    """Name → file of each module that is imported, at the top of a module or inside a function."""
    found: Dict[str, Path] = {}
    waiting = list(ENTRIES)
    while waiting:
        name = waiting.pop()
        file = file_of(name)
        if file is not None and name not in found and not name.startswith(ANOTHER_PLATFORM):
            found[name] = file
            waiting += imported(file)
    return dict(sorted(found.items()))


def file_of(module: str) -> Optional[Path]:
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
