"""Every benchmark's make target runs in the environment that it installs."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tests import ROOT

PROJECT = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"tests"}
# Of requirements.txt.
RUNTIME = {"matplotlib", "nltk", "numpy", "pydantic", "safetensors", "tensorflow", "tokenizers", "transformers"}
PEERS = {"torch", "onnxruntime"}
PYTORCH = {"gpu_visit.py", "peers_pytorch.py", "prediction.py", "race_pytorch.py", "trainer_script.py"}
NEED_PYTORCH = ("gpu_visit", "prediction", "speed", "fine_tuning", "learning pytorch", "learning_race")


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.name)
def test_benchmarks_import_what_is_installed(path: Path) -> None:
    allowed = PROJECT | RUNTIME | set(sys.stdlib_module_names) | (PEERS if path.name in PYTORCH else set())
    assert imported(path) <= allowed


def test_targets_that_need_pytorch_install_it() -> None:
    lines = re.findall(r"^[\w-]+: \$\((\w+)\) .*\n\t.*-m benchmarks\.(.*?) \$", (ROOT / "Makefile").read_text(), re.M)
    assert lines
    for environment, module in lines:
        assert (ROOT / "benchmarks" / f"{module.split()[0]}.py").is_file()
        assert environment == ("BENCH" if module.startswith(NEED_PYTORCH) else "RUNTIME")
