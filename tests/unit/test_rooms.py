"""Rooms: what a BERT can be trained without can be taken out, since the rest names it only on marked lines."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.without_room import marks, read_rooms, take_out, tracked_files, unmarked

ROOMS = read_rooms(ROOT)
TEXTS = {
    file: file.read_text("utf-8")
    for file in tracked_files(ROOT)
    if file.suffix in {".py", ".md", ".toml", ".txt", ".yml"} or file.name == "Makefile"
}


@pytest.mark.parametrize("name", ROOMS)
def test_what_is_left_names_nothing_that_went(name: str, tmp_path: Path) -> None:
    assert [path for path in ROOMS[name] if not (ROOT / path).exists()] == []
    take_out([name], ROOT, tmp_path)
    command = [sys.executable, "-m", "ruff", "check", "--quiet", "--no-cache", "--select", "E9,F", "."]
    assert subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True).stdout == ""
    gone = [path.removesuffix(".py").replace("/", ".") for path in ROOMS[name]]
    left: list[str] = []
    for file in tmp_path.rglob("*.py"):
        text = file.read_text("utf-8")
        if any(module.rpartition(".")[2] in text for module in gone):
            left += [name for name in imports(text) if any(f"{name}.".startswith(f"{module}.") for module in gone)]
    assert left == []


def imports(text: str) -> set[str]:
    """Return every module that a file imports, or module and name."""
    nodes = list(ast.walk(ast.parse(text)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    of_modules = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return plain | {f"{node.module}.{alias.name}" for node in of_modules for alias in node.names}


def test_marks_name_rooms() -> None:
    marked = [
        f"{file.relative_to(ROOT)}: {name}"
        for file, text in TEXTS.items()
        for line in text.splitlines()
        for name in marks(line, file.suffix == ".md")
    ]
    assert [mark for mark in marked if mark.split(": ")[1] not in [*ROOMS, "NAME"]] == []


def test_only_tests_are_marked_as_a_whole() -> None:
    whole = [file for file, text in TEXTS.items() if re.search(r"^def .*# room: \w+$", text, re.MULTILINE)]
    assert [file for file in whole if not file.is_relative_to(ROOT / "tests")] == []


def test_a_marked_line_and_a_marked_section_go() -> None:
    mark = "<!-- room: attic -->"
    text = f"# A\nb {mark}\nc\n## D {mark}\n```\n# e\n```\n### F\n## G\n| h <!-- room: hall --> |\n"
    assert unmarked(text, ["attic"], markdown=True) == "# A\nc\n## G\n| h <!-- room: hall --> |\n"
    assert unmarked("a\nb,  # room: attic\n# room: attic and others\n", ["attic"], markdown=False).split("\n") == [
        "a", "# room: attic and others", ""
    ]  # fmt: skip
    test = "def f():  # room: attic\n    a\n\n    b\ndef g():\n    c  # room: attic\n    d\n"
    assert unmarked(test, ["attic"], markdown=False) == "def g():\n    d\n"


def test_a_room_goes_with_what_stands_in_it(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("attic/box.py", "attic/chest.py", "hall.py"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("import attic  # room: attic\nimport attic.box  # room: box\nimport sys\n")
    (tree / "pyproject.toml").write_text(
        '[tool.rooms]\nbox = ["attic/box.py"]\nattic = [\n    "attic",\n    "room: box",\n]\nhall = ["hall.py"]\n'
    )
    subprocess.run(["git", "init", "--quiet", str(tree)], check=True)
    take_out(["attic"], tree, tmp_path / "copy")
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {"hall.py", "pyproject.toml"}
    assert (tmp_path / "copy" / "hall.py").read_text() == "import sys\n"
    assert read_rooms(tmp_path / "copy") == {"hall": ["hall.py"]}
    take_out(["box"], tree, tmp_path / "other")
    assert read_rooms(tmp_path / "other") == {"attic": ["attic"], "hall": ["hall.py"]}
    assert (tmp_path / "other" / "hall.py").read_text() == "import attic  # room: attic\nimport sys\n"
