"""Turns a command line or a call into one validated config: files, merging, paths, types, rules, derived values."""

from __future__ import annotations

import functools
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple, Union, cast

from pydantic import ValidationError

from model.tasks import TASKS
from settings.derived import derive
from settings.fields import Leaf, Misplaced, value_at
from settings.flags import parse_flags
from settings.problems import (
    CALL,
    COMMAND_LINE,
    DEFAULT,
    DERIVED,
    ConfigError,
    describe_rule,
    describe_validation,
    show,
    with_origin,
)
from settings.rules import broken_rules
from settings.schema import TrainingConfig, leaves
from utilities.errors import UserError
from utilities.files import PROJECT, read_regular

# A config file, its values, or an object made of them.
Source = Union[str, "os.PathLike[str]", Mapping[str, Any], TrainingConfig]

_VARIABLE = re.compile(r"\$(?:\{([^}]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


@dataclass
class LoadedConfig:
    """A validated config and where it came from.

    Args:
        config: the config; immutable.
        task: a name in ``model.tasks.TASKS``.
        origins: for every leaf's dotted name, "default", a config file, "config" (a dict or an object), "command line",
            "argument of train" or "derived".
        source_files: config files read, bases first.
        notes: warnings, one line for each setting that has no effect or is in the wrong section.
    """

    config: TrainingConfig
    task: str
    origins: Dict[str, str]
    source_files: List[Path]
    notes: List[str] = field(default_factory=list)


def load_config(task: str, argv: Sequence[str]) -> LoadedConfig:
    """Return the config that a command line specifies.

    Args:
        task: a name in ``model.tasks.TASKS``.
        argv: arguments without the program's name; ``--config FILE [OVERLAY ...]`` is required.

    Raises:
        UserError: a flag, file or value is wrong; the message is one line.
        SystemExit: after ``--help``.

    Example:
        >>> load_config("pretraining", ["--config", "configs/demo/phase1.json"]).config.max_seq_length
        128
    """
    options, flag_values = parse_flags(task, argv)
    return resolve(task, options.config or (), flag_values)


def config_of_call(task: str, config: Union[Source, Sequence[Source]], overrides: Mapping[str, Any]) -> LoadedConfig:
    """Return the config that the arguments of :func:`tasks.train` specify.

    Raises:
        UserError: there is no such task, or a file or value is wrong; the message is one line.

    Example:
        >>> config_of_call("pretraining", "configs/demo/phase1.json", {"data.shuffle": False}).config.data.shuffle
        False
    """
    if task not in TASKS:
        raise UserError(f"task {show(task)}: there is no such task; name one of {', '.join(TASKS)}")
    sources = config if isinstance(config, (list, tuple)) else [cast(Source, config)]
    plain = {name: _plain(value, f"{name} ({CALL})") for name, value in overrides.items()}
    return resolve(task, sources, plain, CALL)


def resolve(
    task: str, sources: Sequence[Source], overrides: Mapping[str, Any], origin: str = COMMAND_LINE
) -> LoadedConfig:
    """Return the config that sources and overrides specify.

    Args:
        task: a name in ``model.tasks.TASKS``.
        sources: a recipe, and overlays to merge over it in order.
        overrides: values by dotted name, which take precedence over the sources; sections are objects as in a file.
        origin: where the overrides come from.

    Raises:
        UserError: a file or value is wrong; the message is one line.
    """
    if not sources:
        raise UserError("--config FILE is missing; give a JSON config, for example --config configs/demo/phase1.json")
    tree, files = read_config(sources)
    for name, value in overrides.items():
        _merge_into(tree, files, _nested(name, value), Path(), origin, ())
    misplaced = move_misplaced_keys(tree)
    config = _validated(tree)
    config, changed, notes = derive(config, task, tree.origins, _default_name(sources[0], task))
    origins = {name: tree.origins.get(name, DEFAULT) for name in leaves()}
    origins.update(dict.fromkeys(changed, DERIVED))
    problems = [describe_rule(problem, config, origins) for problem in broken_rules(config, task)]
    if problems:
        raise ConfigError(problems)
    return LoadedConfig(config, task, origins, files, misplaced + notes)


def _nested(name: str, value: Any) -> Dict[str, Any]:
    """Return the nested sections of a config file that contain one value, given its dotted name.

    Example:
        >>> _nested("global_batch.replicas", 2)
        {'global_batch': {'replicas': 2}}
    """
    *sections, key = name.split(".")
    return functools.reduce(lambda inner, section: {section: inner}, reversed(sections), {key: value})


def _default_name(source: Source, task: str) -> str:
    """Return the name of a run whose config has none: that of the first config file, or else of the task."""
    return Path(source).stem if isinstance(source, (str, os.PathLike)) else task


def _plain(values: Any, label: str) -> Any:
    """Return a copy of Python values as a JSON file has them: paths as texts, tuples as lists."""
    try:
        text = json.dumps(values, default=os.fspath)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{label}: {error}; a config has numbers, texts, paths, lists and dicts") from error
    return json.loads(text, parse_constant=lambda constant: _refuse_constant(constant, label))


def _validated(tree: Tree) -> TrainingConfig:
    problems = expand_paths(tree.values, tree.origins)
    try:
        config = TrainingConfig.model_validate(tree.values)
    except ValidationError as error:
        # Mistyped keys are reported first, because they matter more than an unset variable of another field.
        raise ConfigError(describe_validation(error, tree.origins) + problems) from error
    if problems:
        raise ConfigError(problems)
    return config


# Files and merging


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


def move_misplaced_keys(tree: Tree) -> List[str]:
    """Move keys that published configs have in the wrong section to the top level, unless they have a value there.

    The published application ignored such keys. Return a note for each.
    """
    notes: List[str] = []
    for leaf in leaves().values():
        mark = leaf.annotation(Misplaced)
        section = tree.values.get(mark.section) if mark is not None else None
        if mark is None or not isinstance(section, dict) or leaf.name not in section:
            continue
        misplaced = f"{mark.section}.{leaf.name}"
        value, origin = section.pop(leaf.name), tree.origins.pop(misplaced)
        note = f"{misplaced} = {show(value)} ({origin}) belongs at the top of the config, as {leaf.name}"
        if leaf.name in tree.values:
            used = with_origin(leaf.name, tree.values[leaf.name], tree.origins)
            notes.append(f"{note}; it has no effect: {used} is used")
        else:
            tree.merge({leaf.name: value}, origin)
            notes.append(f"{note}; its value is used")
    return notes


def read_config(sources: Sequence[Source]) -> Tuple[Tree, List[Path]]:
    """Read a recipe and the overlays that are merged over it, each with everything that it extends.

    Args:
        sources: config files, their values, or objects; values of later ones replace those of earlier ones. A dict's
            ``extends`` is relative to the current folder.

    Returns:
        The merged values with their origins, and the files read, bases first.

    Raises:
        UserError: a file is missing, not JSON, not an object, has a key twice or extends itself.
    """
    tree = Tree()
    files: List[Path] = []
    for number, source in enumerate(sources):
        if isinstance(source, TrainingConfig):
            source = source.model_dump(mode="json", exclude_unset=True)
        if isinstance(source, (str, os.PathLike)):
            about = _read_into(tree, files, located(Path(os.path.expanduser(source))), ())
        elif isinstance(source, Mapping):
            about = _merge_into(tree, files, _plain(dict(source), "config"), Path(), "config", ())
        else:
            raise UserError(f"config: {show(source)} is not a config; give a path, a dict, or a list of these")
        if number == 0 and about is not None:  # the comment of an overlay does not describe the run
            tree.values["about"] = about
    return tree, files


def located(path: Path) -> Path:
    """Return the path of a config in the current folder, or else in the project's, which has the recipes."""
    in_project = PROJECT / path  # an absolute path is not changed
    return in_project if os.path.exists(in_project) and not os.path.exists(path) else path


def _read_into(tree: Tree, files: List[Path], path: Path, chain: Tuple[Path, ...]) -> Any:
    """Merge a file and its bases into the tree; return the file's own comment."""
    resolved = Path(os.path.realpath(path))  # unlike Path.resolve, no error for a loop of links
    if resolved in chain:
        circle = " -> ".join(display(p) for p in (*chain[chain.index(resolved) :], resolved))
        raise UserError(f"extends: config files extend each other in a circle: {circle}; remove one extends")
    about = _merge_into(tree, files, _read_config_file(path), path.parent, display(path), (*chain, resolved))
    if resolved not in files:
        files.append(resolved)
    return about


def _merge_into(
    tree: Tree, files: List[Path], values: Dict[str, Any], folder: Path, label: str, chain: Tuple[Path, ...]
) -> Any:
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
        _read_into(tree, files, base, chain)
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


def _read_config_file(path: Path) -> Dict[str, Any]:
    """Read the object in a JSON file.

    Raises:
        UserError: see :func:`read_config`; a syntax error is reported with line and column.
    """
    label = display(path)
    try:
        text = read_regular(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{label}: byte {error.start} is not UTF-8; save the config file as UTF-8") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, FileNotFoundError) and not path.is_absolute():
            reason += f" in {' or '.join(dict.fromkeys((os.getcwd(), str(PROJECT))))}"
        raise UserError(f"--config: cannot read {label}: {reason}; give the path of a JSON config file") from error
    if not text.strip():
        raise UserError(f"{label}: the file is empty; a config is a JSON object {{…}}")
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
        raise UserError(f"{label}: nested too deeply for a config; a config has at most three levels") from error
    except UserError:
        raise
    except ValueError as error:  # Python refuses to read whole numbers of thousands of digits
        raise UserError(f"{label}: a number has too many digits; write a shorter one") from error
    if not isinstance(values, dict):
        raise UserError(f"{label}: the file contains {show(values)}; a config is a JSON object {{…}}")
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
    try:
        relative = os.path.relpath(str(path))
    except ValueError:  # another drive
        return str(path)
    return str(path) if relative.startswith("..") else relative


# Paths


def expand_paths(values: Dict[str, Any], origins: Dict[str, str]) -> List[str]:
    """Expand ``$VAR``, ``${VAR}`` and ``~`` in every path field of ``values``, and return the problems, one line each.

    ``dataset_dir`` stays unchanged if the run uses random data, which needs no folder.
    """
    problems: List[str] = []
    for leaf in leaves().values():
        if leaf.kind.name != "path":
            continue
        value = value_at(values, leaf.path)
        if not isinstance(value, str) or (leaf.name == "dataset_dir" and values.get("generated_dataset") is True):
            continue
        problem = _path_problem(leaf, value, origins)
        if problem:
            problems.append(problem)
        else:
            section = value_at(values, leaf.path[:-1])
            section[leaf.path[-1]] = _expand(value)
    return problems


def _expand(path: str) -> str:
    filled = _VARIABLE.sub(lambda match: os.environ[match.group(1) or match.group(2)], path)
    return os.path.expanduser(filled)


def _path_problem(leaf: Leaf, value: str, origins: Dict[str, str]) -> str:
    field_text = with_origin(leaf.name, value, origins)
    if "\0" in value:
        return f"{field_text}: contains a NUL character; correct the path"
    for match in _VARIABLE.finditer(value):
        variable = match.group(1) or match.group(2)
        if not variable:
            return f"{field_text}: ${{}} names no variable; correct the path"
        if variable not in os.environ:
            return (
                f"{field_text}: the environment variable {variable} is not set; "
                f"run: export {variable}=/path, or give {leaf.flag} PATH"
            )
        if not os.environ[variable]:
            return f"{field_text}: the environment variable {variable} is empty; run: export {variable}=/path"
    if value.startswith("~") and os.path.expanduser(value) == value:
        return f"{field_text}: no home folder for {value.split('/')[0]}; write the path in full"
    return ""
