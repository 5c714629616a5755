"""Turns a command line or a call into one validated config: paths, types, rules, and derived values."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union, cast

from pydantic import ValidationError

from model.tasks import TASKS
from settings.architecture import follow_weights, known_architecture
from settings.config_files import ConfigSource, Tree, merge_into, plain_values, read_config
from settings.derived import derive, with_values
from settings.fields import Leaf, value_at
from settings.notes import config_notes
from settings.problems import (
    CALL,
    COMMAND_LINE,
    DEFAULT,
    DERIVED,
    ConfigError,
    describe_rule,
    describe_validation,
    find_origin,
    show,
    with_origin,
)
from settings.rules import RULES
from settings.schema import TrainingConfig, leaves
from utilities.errors import UserError

# Returns values that a task's data determine, by dotted name, given the config and the name of the task.
Complete = Callable[[TrainingConfig, str], Dict[str, Any]]

_VARIABLE = re.compile(r"\$(?:\{([^}]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


@dataclass
class LoadedConfig:
    """A validated config and where it came from.

    Args:
        origins: for every leaf's dotted name, "default", a config file, "config" (a dict or an object), "command line",
            "argument of train", "derived" or "data".
        notes: warnings, one line for each setting that has no effect or is in the wrong section.
        rows: what was chosen for the rows of a fine-tuning that leaves them open; empty if nothing was.
        found: number of these rows to train on, and mean number of samples in one; None if the data was not read.
    """

    config: TrainingConfig
    task: str
    origins: Dict[str, str]
    notes: List[str] = field(default_factory=list)
    rows: str = ""
    found: Optional[Tuple[int, float]] = None


def resolve_call(
    task: str,
    config: Union[ConfigSource, Sequence[ConfigSource]],
    overrides: Mapping[str, Any],
    complete: Optional[Complete] = None,
) -> LoadedConfig:
    """Return the config that the arguments of :func:`tasks.train` specify; for ``complete`` see :func:`resolve`."""
    if task not in TASKS:
        raise UserError(f"task {show(task)}: there is no such task; name one of {', '.join(TASKS)}")
    sources = config if isinstance(config, (list, tuple)) else [cast(ConfigSource, config)]
    plain = {name: plain_values(value, f"{name} ({CALL})") for name, value in overrides.items()}
    return resolve(task, sources, plain, CALL, complete)


def resolve(
    task: str,
    sources: Sequence[ConfigSource],
    overrides: Mapping[str, Any],
    origin: str = COMMAND_LINE,
    complete: Optional[Complete] = None,
) -> LoadedConfig:
    """Return the config that sources and overrides specify.

    Args:
        sources: a recipe, and overlays to merge over it in order.
        overrides: values by dotted name, which take precedence over the sources; sections are objects as in a file.
        origin: where the overrides come from.
        complete: reads values that are unset from the task's data; None: they stay unset.
    """
    if not sources:
        raise UserError(
            "--config FILE is missing; give a JSON config, for example --config"
            " configs/pretraining/pretrain_tiny_128_speedrun.json"
        )
    tree = read_config(sources)
    for name, value in overrides.items():
        merge_into(tree, _nested(name, value), Path(), origin, ())
    misplaced = move_misplaced_keys(tree)
    config = _validated(tree)
    from_data = complete(config, task) if complete is not None else {}
    config, from_weights, replaced = follow_weights(with_values(config, from_data), task, tree.origins)
    tree.origins.update(dict.fromkeys(from_weights, DERIVED))
    known = known_architecture(config, task)
    notes = [*misplaced, *replaced, *config_notes(config, task, known, tree.origins)]
    file_stem = Path(sources[0]).stem if isinstance(sources[0], (str, os.PathLike)) else task
    config, changed = derive(config, task, known, tree.origins, file_stem)
    origins = {name: tree.origins.get(name, DEFAULT) for name in leaves()}
    origins.update(dict.fromkeys([*from_data, *changed], DERIVED))
    broken = [problem for rule in RULES for problem in rule(config, task)]
    if broken:
        raise ConfigError([describe_rule(problem, config, origins) for problem in broken])
    return LoadedConfig(config, task, origins, notes)


def check_values(values: Mapping[str, Any]) -> None:
    """Check the types of flags' values by dotted name, before there is a whole config."""
    tree = Tree()
    for name, value in values.items():
        tree.merge(_nested(name, value), COMMAND_LINE)
    _validated(tree)


def _nested(name: str, value: Any) -> Dict[str, Any]:
    """Return the nested sections of a config file that contain one value, given its dotted name."""
    *sections, key = name.split(".")
    return functools.reduce(lambda inner, section: {section: inner}, reversed(sections), {key: value})


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


def move_misplaced_keys(tree: Tree) -> List[str]:
    """Move keys that the published program ignored to the top, unless it has a value; return a note for each."""
    notes: List[str] = []
    section = tree.values.get("bert_config")
    if not isinstance(section, dict):
        return []
    for name in ("max_seq_length", "max_predictions_per_seq"):
        if name not in section:
            continue
        misplaced = f"bert_config.{name}"
        value, origin = section.pop(name), find_origin(misplaced, tree.origins)
        tree.origins.pop(misplaced, None)
        note = f"{misplaced} = {show(value)} ({origin}) belongs at the top of the config, as {name}"
        if name in tree.values:
            used = with_origin(name, tree.values[name], tree.origins)
            notes.append(f"{note}; it has no effect: {used} is used")
        else:
            tree.merge({name: value}, origin)
            notes.append(f"{note}; its value is used")
    return notes


def expand_paths(values: Dict[str, Any], origins: Dict[str, str]) -> List[str]:
    """Expand ``$VAR``, ``${VAR}`` and ``~`` in every path field of ``values``, and return the problems, one line each.

    ``dataset_dir`` stays unchanged if the run uses random data, which needs no folder.
    """
    problems: List[str] = []
    for leaf in leaves().values():
        if leaf.kind.name != "path":
            continue
        value = value_at(values, leaf.name)
        if not isinstance(value, str) or (leaf.name == "dataset_dir" and values.get("generated_dataset") is True):
            continue
        problem = _path_problem(leaf, value, origins)
        if problem:
            problems.append(problem)
        else:
            *sections, key = leaf.path
            section = value_at(values, ".".join(sections)) if sections else values
            filled = _VARIABLE.sub(lambda match: os.environ[match.group(1) or match.group(2)], value)
            section[key] = os.path.expanduser(filled)
    return problems


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
