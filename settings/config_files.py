"""Reads config files with what they extend, and merges them into one tree of values, each with its origin."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple, Union

from settings.problems import show
from settings.schema import TrainingConfig
from utilities.errors import UserError
from utilities.files import PROJECT, read_regular

# A config file, its values, or an object made of them.
ConfigSource = Union[str, "os.PathLike[str]", Mapping[str, Any], TrainingConfig]


@dataclass
class Tree:
    """Raw values of one config, nested as in JSON, and the origin of each leaf by dotted name."""

    values: Dict[str, Any] = field(default_factory=dict)
    origins: Dict[str, str] = field(default_factory=dict)

    def merge(self, values: Dict[str, Any], origin: str) -> None:
        """Merge ``values`` over this tree: objects merge, everything else replaces."""
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


def read_config(sources: Sequence[ConfigSource]) -> Tree:
    """Read a recipe and the overlays that are merged over it, each with everything that it extends.

    Args:
        sources: config files, their values, or objects; values of later ones replace those of earlier ones. A dict's
            ``extends`` is relative to the current folder.
    """
    tree = Tree()
    for number, source in enumerate(sources):
        if isinstance(source, TrainingConfig):
            source = source.model_dump(mode="json", exclude_unset=True)
        if isinstance(source, (str, os.PathLike)):
            about = _read_into(tree, located(Path(os.path.expanduser(source))), ())
        elif isinstance(source, Mapping):
            about = merge_into(tree, plain_values(dict(source), "config"), Path(), "config", ())
        else:
            raise UserError(f"config: {show(source)} is not a config; give a path, a dict, or a list of these")
        if number == 0 and about is not None:  # the comment of an overlay does not describe the run
            tree.values["about"] = about
    return tree


def located(path: Path) -> Path:
    """Return the path of a config in the current folder, or else in the project's, which has the recipes."""
    in_project = PROJECT / path  # an absolute path is not changed
    return in_project if os.path.exists(in_project) and not os.path.exists(path) else path


def _read_into(tree: Tree, path: Path, chain: Tuple[Path, ...]) -> Any:
    """Merge a file and its bases into the tree; return the file's own comment."""
    resolved = Path(os.path.realpath(path))  # unlike Path.resolve, no error for a loop of links
    if resolved in chain:
        circle = " -> ".join(display(p) for p in (*chain[chain.index(resolved) :], resolved))
        raise UserError(f"extends: config files extend each other in a circle: {circle}; remove one extends")
    return merge_into(tree, read_object(path), path.parent, display(path), (*chain, resolved))


def merge_into(tree: Tree, values: Dict[str, Any], folder: Path, label: str, chain: Tuple[Path, ...]) -> Any:
    """Merge values and, before them, their bases in ``folder`` into the tree; return the values' own comment."""
    bases = _bases(values.pop("extends", None), label)
    about = values.pop("about", None)
    for name in bases:
        base = folder / name if chain else located(folder / name)
        if not os.path.isfile(base):  # unlike Path.is_file, this raises no error for a name that is too long
            raise UserError(
                f"extends = {show(name)} ({label}): there is no such file; "
                f"paths in extends are relative to the file that contains them, correct it"
            )
        _read_into(tree, base, chain)
    tree.merge(values, label)
    return about


def _bases(extends: Any, label: str) -> Sequence[str]:
    if extends is None:
        return []
    names: Sequence[Any] = [extends] if isinstance(extends, str) else extends
    if not isinstance(names, list) or not all(isinstance(n, str) and n for n in names):
        raise UserError(
            f"extends = {show(extends)} ({label}): expected a file name or a list of file names; "
            f'write "extends": "base.json"'
        )
    return names


def read_object(path: Path) -> Dict[str, Any]:
    label = display(path)
    try:
        text = read_regular(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{label}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, FileNotFoundError) and not path.is_absolute():
            reason += f" in {' or '.join(dict.fromkeys((os.getcwd(), str(PROJECT))))}"
        known = [display(each) for each in (PROJECT / "configs").rglob("*.json") if each.name == path.name]
        fix = f"did you mean {known[0]}?" if known else "give the path of a JSON file"
        raise UserError(f"--config: cannot read {label}: {reason}; {fix}") from error
    if not text.strip():
        raise UserError(f"--config: {label} is empty; write a JSON object {{…}}")
    try:
        values = json.loads(
            text,
            object_pairs_hook=lambda pairs: _unique(pairs, text, label),
            parse_constant=lambda c: _refuse_constant(c, label),
        )
    except json.JSONDecodeError as error:
        raise UserError(
            f"{label}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}; " + _json_hint(text, error.pos)
        ) from error
    except RecursionError as error:
        raise UserError(f"{label}: nested too deeply; a config has at most three levels") from error
    except UserError:
        raise
    except ValueError as error:  # Python refuses to read whole numbers of thousands of digits
        raise UserError(f"{label}: a number has too many digits; write a shorter one") from error
    if not isinstance(values, dict):
        raise UserError(f"--config: {label} contains {show(values)}; write a JSON object {{…}}")
    return values


def _unique(pairs: List[Tuple[str, Any]], text: str, label: str) -> Dict[str, Any]:
    seen: Dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            lines = [str(n) for n, line in enumerate(text.splitlines(), 1) if json.dumps(key) in line]
            where = f" (line {', '.join(lines)})" if lines else ""
            raise UserError(f"{label}: the key {show(key)} appears twice in one object{where}; remove one of them")
        seen[key] = value
    return seen


def plain_values(values: Any, label: str) -> Any:
    """Return a copy of Python values as a JSON file has them: paths as texts, tuples as lists."""
    try:
        text = json.dumps(values, default=os.fspath)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{label}: {error}; a config has numbers, texts, paths, lists and dicts") from error
    return json.loads(text, parse_constant=lambda constant: _refuse_constant(constant, label))


def _refuse_constant(name: str, label: str) -> Any:
    raise UserError(f"{label}: contains {name}, which is not a number in JSON; write a finite number, or null")


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
    """Return a path for messages: relative to the current folder if it is inside."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
