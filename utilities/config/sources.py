"""Config files: JSON with ``extends``, merged into one tree that remembers where each value came from."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from utilities.config.problems import show, with_origin
from utilities.errors import UserError


@dataclass
class Tree:
    """Raw values of one config, nested as in JSON, and the origin of each leaf by dotted name."""

    values: Dict[str, Any] = field(default_factory=dict)
    origins: Dict[str, str] = field(default_factory=dict)

    def merge(self, values: Dict[str, Any], origin: str) -> None:
        """Lays ``values`` over this tree: objects merge, everything else replaces."""
        self._merge(self.values, values, "", origin)

    def _merge(self, target: Dict[str, Any], values: Dict[str, Any], prefix: str, origin: str) -> None:
        for key, value in values.items():
            name = prefix + key
            if isinstance(value, dict):
                if not isinstance(target.get(key), dict):
                    target[key] = {}
                    self.origins.pop(name, None)
                if not value and not target[key]:
                    self.origins[name] = origin
                self._merge(target[key], value, name + ".", origin)
                continue
            for stale in [n for n in self.origins if n.startswith(name + ".")]:
                del self.origins[stale]
            target[key] = value
            self.origins[name] = origin


# Keys of the top level that published configs also have inside bert_config; the published application ignored them.
MISPLACED = ("max_seq_length", "max_predictions_per_seq")


def move_misplaced_keys(tree: Tree) -> List[str]:
    """Move ``MISPLACED`` keys of ``bert_config`` to the top of the config, unless they have a value there.

    Returns:
        One note for each such key, which says where it belongs.
    """
    section = tree.values.get("bert_config")
    notes: List[str] = []
    for key in MISPLACED if isinstance(section, dict) else ():
        if key not in section:
            continue
        value, origin = section.pop(key), tree.origins.pop(f"bert_config.{key}")
        note = f"bert_config.{key} = {show(value)} ({origin}) belongs at the top of the config, as {key}"
        if key in tree.values:
            notes.append(f"{note}; it has no effect: {with_origin(key, tree.values[key], tree.origins)} holds")
        else:
            tree.merge({key: value}, origin)
            notes.append(f"{note}; its value is used")
    return notes


def read_config(path: Path) -> Tuple[Tree, List[Path]]:
    """A config file with all that it extends.

    Args:
        path: the JSON file.

    Returns:
        the merged values with their origins, and the files read, bases first.

    Raises:
        UserError: a file that is missing, not JSON, not an object, writes a key twice or extends itself.
    """
    tree = Tree()
    files: List[Path] = []
    _read_into(tree, files, path, ())
    return tree, files


def _read_into(tree: Tree, files: List[Path], path: Path, chain: Tuple[Path, ...]) -> None:
    resolved = path.resolve()
    if resolved in chain:
        circle = " -> ".join(display(p) for p in (*chain[chain.index(resolved) :], resolved))
        raise UserError(f"extends: config files extend each other in a circle: {circle}; remove one extends")
    values = read_json_object(path)
    bases = _bases(values.pop("extends", None), path)
    about = values.pop("about", None)
    for name in bases:
        base = path.parent / name
        if not os.path.isfile(base):  # unlike Path.is_file false, not an error, for a name that is too long
            raise UserError(
                f"extends = {show(name)} ({display(path)}): there is no such file; "
                f"paths in extends are relative to the file they stand in, correct it"
            )
        _read_into(tree, files, base, (*chain, resolved))
    tree.merge(values, display(path))
    if not chain and about is not None:  # a base's comment does not describe the file that builds on it
        tree.values["about"] = about
    if resolved not in files:
        files.append(resolved)


def _bases(extends: Any, path: Path) -> Sequence[str]:
    if extends is None:
        return []
    names: Sequence[Any] = [extends] if isinstance(extends, str) else extends
    if not isinstance(names, list) or not all(isinstance(n, str) and n for n in names):
        raise UserError(
            f"extends = {show(extends)} ({display(path)}): expected a file name or a list of file names; "
            f'write "extends": "base.json"'
        )
    return names


def read_json_object(path: Path) -> Dict[str, Any]:
    """The object in a JSON file; a syntax error is reported with line and column.

    Raises:
        UserError: see :func:`read_config`.
    """
    label = display(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{label}: byte {error.start} is not UTF-8; save the config file as UTF-8") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"--config: cannot read {label}: {reason}; give the path of a JSON config file") from error
    if not text.strip():
        raise UserError(f"{label}: the file is empty; a config is a JSON object {{…}}")
    try:
        values = json.loads(
            text,
            object_pairs_hook=lambda pairs: _unique(pairs, text, label),
            parse_constant=lambda c: _constant(c, label),
        )
    except json.JSONDecodeError as error:
        raise UserError(
            f"{label}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}; " + _json_hint(text, error.pos)
        ) from error
    except RecursionError as error:
        raise UserError(f"{label}: nested too deeply for a config; a config has at most three levels") from error
    except UserError:
        raise
    except ValueError as error:  # Python refuses to read whole numbers of thousands of digits
        raise UserError(f"{label}: holds a number of too many digits; write a shorter one") from error
    if not isinstance(values, dict):
        raise UserError(f"{label}: the file holds {show(values)}; a config is a JSON object {{…}}")
    return values


def _unique(pairs: List[Tuple[str, Any]], text: str, label: str) -> Dict[str, Any]:
    seen: Dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            lines = [str(n) for n, line in enumerate(text.splitlines(), 1) if json.dumps(key) in line]
            where = f" (line {', '.join(lines)})" if lines else ""
            raise UserError(f"{label}: the key {show(key)} stands twice in one object{where}; remove one of them")
        seen[key] = value
    return seen


def _constant(name: str, label: str) -> Any:
    raise UserError(f"{label}: holds {name}, which is not a number in JSON; write a finite number, or null")


def _json_hint(text: str, position: int) -> str:
    before = text[:position].rstrip()
    ahead = text[position : position + 1]
    if before.endswith(",") and ahead in "}]":
        return "remove the comma before it"
    if ahead == "'":
        return "use double quotes"
    if text[position : position + 2] in ("//", "/*") or ahead == "#":
        return 'JSON has no comments, use the key "about"'
    return "correct it there"


def display(path: Path) -> str:
    """A path as users know it: relative to the current folder where it lies inside."""
    try:
        relative = os.path.relpath(str(path))
    except ValueError:  # another drive
        return str(path)
    return str(path) if relative.startswith("..") else relative
