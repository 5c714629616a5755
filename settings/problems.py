"""Errors of a config, one line each: the field, its value, its origin, and the fix."""

from __future__ import annotations

import difflib
import json
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from pydantic import ValidationError

from settings.fields import Leaf, value_at
from settings.schema import leaves, sections
from utilities.errors import UserError

# Origins of values that do not come from a file.
DEFAULT = "default"
COMMAND_LINE = "command line"
CALL = "argument of train"
TYPED = (COMMAND_LINE, CALL)  # given for this run alone, not in a config that others share
DERIVED = "derived"
DATA = "data"  # chosen by what the data set contains

ABBREVIATED = {  # what people write, and difflib does not find
    "lr": "optimizer_opts.learning_rate.max_learning_rate",
    "dropout": "bert_config.hidden_dropout_prob",
}
_LONGEST_VALUE = 60  # characters of a value that a message shows


class ConfigError(UserError):
    """One or more problems of a config; the message is the first, ``problems`` contains all."""

    def __init__(self, problems: Sequence[str]):
        self.problems = list(problems)
        more = len(self.problems) - 1
        super().__init__(self.problems[0] + (f" (and {more} more; --debug lists them)" if more else ""))


class SettingError(NamedTuple):
    """A rule that is broken by one or several fields, of which the first one is to be changed."""

    fields: Sequence[str]
    reason: str
    fix: str


def show(value: Any) -> str:
    """Return a value as JSON on one line, shortened if it is long."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value).replace("\n", " ")
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def with_origin(name: str, value: Any, origins: Dict[str, str]) -> str:
    """Return a field with its value and origin, ``global_batch.replicas = 4 (configs/x.json)``."""
    return f"{name} = {show(value)} ({find_origin(name, origins)})"


def find_origin(name: str, origins: Dict[str, str]) -> str:
    """Return the origin of a value; for a section, that of its first value."""
    if name in origins:
        return origins[name]
    inside = [origin for field, origin in origins.items() if field.startswith(name + ".")]
    return inside[0] if inside else DEFAULT


def describe_rule(problem: SettingError, config: Any, origins: Dict[str, str]) -> str:
    """Return the line for a broken rule, with the value and origin of each field concerned, and their flags."""
    fields = [with_origin(name, value_at(config, name), origins) for name in problem.fields]
    return f"{', '.join(fields)}: {problem.reason}; {problem.fix}" + _flag_hint(problem.fields)


def _flag_hint(names: Sequence[str]) -> str:
    """Return the flags of the fields among these names, for the end of a message."""
    flags = [leaves()[name].flag for name in names if name in leaves()]
    return f" (flag{'s' if len(flags) > 1 else ''}: {', '.join(flags)})" if flags else ""


def nearest(word: str, known: Sequence[str], cutoff: float = 0.6) -> str:
    """Return the known name that is most similar to ``word``, or an empty string; ``cutoff`` is difflib's."""
    lower = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(word.lower(), list(lower), n=1, cutoff=cutoff)
    return lower[matches[0]] if matches else ""


def describe_validation(error: ValidationError, origins: Dict[str, str]) -> List[str]:
    """Return one line for each field that pydantic refused."""
    lines: Dict[str, None] = {}  # an ordered set, because one value may break several constraints
    for item in error.errors():
        keys = [part for part in item["loc"] if isinstance(part, str)]
        if item["type"] == "extra_forbidden":
            *section, key = keys
            name = ".".join(keys)
            lines[f"{name} ({find_origin(name, origins)}): unknown key; {_key_hint('.'.join(section), key)}"] = None
            continue
        name = _known_part(keys)
        if name in leaves():
            index = next((part for part in item["loc"] if isinstance(part, int)), None)
            upper_bound = item.get("ctx", {}).get("le")
            lines[_wrong_value(leaves()[name], index, item["input"], origins, upper_bound)] = None
        else:
            lines[_not_an_object(name, item["input"], origins)] = None
    return list(lines)


def _known_part(keys: Sequence[str]) -> str:
    """Return the longest start of ``keys`` that is a field or section of the schema, by dotted name."""
    for length in range(len(keys), 0, -1):
        name = ".".join(keys[:length])
        if name in leaves() or name in sections():
            return name
    return ".".join(keys)


def _wrong_value(leaf: Leaf, index: Any, value: Any, origins: Dict[str, str], upper_bound: Optional[int] = None) -> str:
    """Return the line for a wrong value; ``upper_bound`` is the one that it exceeds, if that is its problem."""
    item = leaf.name if index is None else f"{leaf.name}[{index}]"
    line = f"{item} = {show(value)} ({find_origin(leaf.name, origins)})"
    # Only fields with a natural bound name it in general.
    is_named = upper_bound is None or str(upper_bound) in leaf.kind.expected.replace(",", "")
    bound = "" if is_named else f" and at most {upper_bound:,}"
    return f"{line}: expected {leaf.kind.expected}{bound}; {_value_hint(leaf, value)}" + _flag_hint([leaf.name])


def _value_hint(leaf: Leaf, value: Any) -> str:
    guess = nearest(value, leaf.choices) if isinstance(value, str) else ""
    if guess:
        return f"did you mean {show(guess)}?"
    if isinstance(value, str) and leaf.kind.name in ("int", "float", "bool"):
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            inner = None
        if type(inner) in ((bool,) if leaf.kind.name == "bool" else (int, float)):
            return f"write {value} without quotes"
    if isinstance(value, str) and any(0xD800 <= ord(character) < 0xE000 for character in value):
        return "the text contains half a character (a lone surrogate), remove it"
    if value is None and not leaf.optional:
        return f"remove the key to get the default, {show(leaf.default)}"
    if leaf.choices:
        return f"set {leaf.name} to one of these"
    default = "unset" if leaf.default is None else show(leaf.default)
    return f"correct it, or remove it for the default ({default})"


def _not_an_object(name: str, value: Any, origins: Dict[str, str]) -> str:
    keys = ", ".join(sections()[name].keys) if name in sections() else "its keys"
    fix = f'write "{name.split(".")[-1]}": {{…}} with keys from: {keys}'
    return f"{with_origin(name, value, origins)}: expected an object; {fix}"


def _key_hint(section: str, key: str) -> str:
    """Return what was probably meant by a key that a section does not have."""
    if key in leaves() and "." in key:
        outer, _, inner = key.rpartition(".")
        return f"write it as {outer}: {{ {inner}: … }}"
    owner = next((name for name, info in sections().items() if name != section and key in info.keys), None)
    if owner is not None:
        return f"it belongs in section {owner}: {owner}.{key}" if owner else f"{key} belongs at the top of the config"
    known = sections()[section].keys if section in sections() else ()
    if key in ABBREVIATED:
        return f"did you mean {ABBREVIATED[key]}?"
    names = {leaf.path[-1]: leaf.name for leaf in leaves().values()}
    names.update({own: ".".join(filter(None, (section, own))) for own in known})
    guess = nearest(key, list(names))
    if guess:
        return f"did you mean {names[guess]}?"
    if section:
        return f"keys of {section} are {', '.join(known)}"
    return "remove it; --help lists every key"
