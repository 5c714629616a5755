"""Takes rooms out of a copy of the tree and checks what is left: ``make without ROOM=doctor``, or ``doctor,dask``.

A room is a feature that a BERT can be trained without. ``[tool.rooms]`` in pyproject.toml lists its files and folders,
and ``"room: NAME"`` for a room that goes with it. A line elsewhere that names it ends in ``# room: NAME``; a line of
Markdown has ``<!-- room: NAME -->``, and a heading with it stands for its section. The ``def`` of a test stands for it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MARK, MARKDOWN = re.compile(r"# room: (\w+)$"), re.compile(r"<!-- room: (\w+) -->")


def read_rooms(root: Path) -> dict[str, list[str]]:
    """Return the paths of each room, those of rooms that go with it included."""
    lists = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["rooms"]

    def paths(name: str) -> list[str]:
        parts = ([entry] if ":" not in entry else paths(entry.removeprefix("room: ")) for entry in lists[name])
        return [path for part in parts for path in part]

    return {name: paths(name) for name in lists}


def tracked_files(root: Path) -> list[Path]:
    """Return what git knows or would add."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.check_output(command, text=True).split("\0")
    return [root / name for name in names if name and (root / name).is_file()]


def marks(line: str, markdown: bool) -> list[str]:
    """Return the rooms that a line goes with."""
    return (MARKDOWN if markdown else MARK).findall(line.rstrip("\n"))


def unmarked(text: str, rooms: list[str], markdown: bool) -> str:
    """Return a text without the lines that name a room, the sections of Markdown whose heading does, and such tests."""
    kept, fenced = [], False
    deepest = 99  # what stands deeper than this goes, too
    for line in text.splitlines(keepends=True):
        fenced ^= markdown and line.startswith("```")
        depth = depth_of(line, markdown, fenced)
        named = any(name in rooms for name in marks(line, markdown))
        if depth <= deepest:
            deepest = depth if named and opens(line, markdown) else 99
            if not named:
                kept.append(line)
    return "".join(kept)


def depth_of(line: str, markdown: bool, fenced: bool) -> int:
    """Return the level of a heading, or the indentation of Python; 98 for what belongs to what is before it."""
    if markdown:
        return 98 if fenced or not line.startswith("#") else len(line) - len(line.lstrip("#"))
    return len(line) - len(line.lstrip()) if line.strip() else 98


def opens(line: str, markdown: bool) -> bool:
    """Return whether a marked line stands for what follows it."""
    return line.startswith("#" if markdown else "def ")


def take_out(names: list[str], root: Path, copy: Path) -> None:
    """Copy the tree without rooms, and those that go with them."""
    rooms = read_rooms(root)
    out = {path for name in names for path in rooms[name]}
    gone = [root / path for path in out]
    names = [name for name, paths in rooms.items() if out.issuperset(paths)]
    for file in tracked_files(root):
        if not any(path == file or path in file.parents for path in gone):
            target = copy / file.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
            content = file.read_bytes()
            if b" room: " in content:
                target.write_text(unmarked(content.decode(), names, file.suffix == ".md"), "utf-8")
    table = (copy / "pyproject.toml").read_text("utf-8")
    for name in names:
        table = re.sub(rf'^{name} = \[.*?\]\n|"room: {name}", *', "", table, flags=re.DOTALL | re.MULTILINE)
    (copy / "pyproject.toml").write_text(table, "utf-8")


def main(names: list[str], pytest_arguments: list[str]) -> int:
    name, python, failed = ", ".join(names), sys.executable, []
    with tempfile.TemporaryDirectory(prefix="without-") as folder:
        take_out(names, ROOT, Path(folder))
        before, after = len(tracked_files(ROOT)), sum(1 for path in Path(folder).rglob("*") if path.is_file())
        print(f"without {name}: {before - after} of {before} files less", flush=True)
        for command in (
            ["git", "init", "--quiet"],
            [python, "-m", "ruff", "check", "--quiet", "--select", "I", "--fix", "."],  # a list that became shorter
            [python, "-m", "ruff", "format", "--quiet", "."],
            [python, "-m", "ruff", "check", "."],
            [str(Path(python).with_name("lint-imports"))],
            [python, "-m", "mypy"],
            [python, "-m", "pytest", "-m", "not slow and not long", *pytest_arguments],
        ):
            if subprocess.run(command, cwd=folder).returncode:
                failed.append(" ".join(command[2:4]) or command[0])
    print(f"without {name}: " + (f"failed: {', '.join(failed)}" if failed else "all checks passed"))
    return bool(failed)


if __name__ == "__main__":
    known, given = read_rooms(ROOT), sys.argv[1].split(",")
    if not set(given) <= set(known):
        sys.exit(f"error: name rooms, make without ROOM=NAME or NAME,NAME: {', '.join(known)}")
    sys.exit(main(given, sys.argv[2:]))
