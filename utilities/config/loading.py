"""From a command line to one validated config: files, flags, paths, types, rules, derived values."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Sequence

from pydantic import ValidationError

from utilities.config.derivation import derive
from utilities.config.fields import leaves
from utilities.config.flags import parse_flags
from utilities.config.paths import expand_paths
from utilities.config.problems import ConfigError, describe_rule, describe_validation
from utilities.config.rules import broken_rules
from utilities.config.schema import TrainingConfig
from utilities.config.sources import Tree, move_misplaced_keys, read_config
from utilities.errors import UserError

DEFAULT = "default"
COMMAND_LINE = "command line"
DERIVED = "derived"


@dataclass
class LoadedConfig:
    """A validated config and where it came from.

    Args:
        config: the config; immutable.
        task: ``pretraining``, ``squad`` or ``classification``.
        origins: for every leaf's dotted name "default", a config file, "command line" or "derived".
        source_files: config files read, bases first.
        options: the command's own options ``config``, ``plan``, ``schema``, ``debug``.
        notes: one line for each setting that has no effect here, to be shown as warnings.
    """

    config: TrainingConfig
    task: str
    origins: Dict[str, str]
    source_files: List[Path]
    options: argparse.Namespace
    notes: List[str] = field(default_factory=list)


def load_config(task: str, argv: Sequence[str]) -> LoadedConfig:
    """The config that a command line asks for.

    Args:
        task: ``pretraining``, ``squad`` or ``classification``.
        argv: arguments without the program's name; ``--config FILE`` is required.

    Raises:
        UserError: anything wrong with flags, files or values, in one line.
        SystemExit: after ``--help``.

    Example:
        >>> load_config("pretraining", ["--config", "configs/demo/phase1.json"]).config.max_seq_length
        128
    """
    options, flag_values = parse_flags(task, argv)
    return resolve(task, options, flag_values)


def resolve(task: str, options: argparse.Namespace, flag_values: Dict[str, Any]) -> LoadedConfig:
    """The config of parsed flags; see :func:`load_config`."""
    if not options.config:
        raise UserError("--config FILE is missing; give a JSON config, for example --config configs/demo/phase1.json")
    tree, files = read_config(Path(os.path.expanduser(options.config)))
    tree.merge(flag_values, COMMAND_LINE)
    misplaced = move_misplaced_keys(tree)
    config = _validated(tree)
    config, changed, notes = derive(config, task, tree.origins, Path(options.config).stem)
    origins = {name: tree.origins.get(name, DEFAULT) for name in leaves()}
    origins.update(dict.fromkeys(changed, DERIVED))
    problems = [describe_rule(problem, config, origins) for problem in broken_rules(config, task)]
    if problems:
        raise ConfigError(problems)
    return LoadedConfig(config, task, origins, files, options, misplaced + notes)


def _validated(tree: Tree) -> TrainingConfig:
    problems = expand_paths(tree.values, tree.origins)
    try:
        config = TrainingConfig.model_validate(tree.values)
    except ValidationError as error:
        # A mistyped key says more than the variable of another field.
        raise ConfigError(describe_validation(error, tree.origins) + problems) from error
    if problems:
        raise ConfigError(problems)
    return config
