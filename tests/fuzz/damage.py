"""Ways to damage a file, each a tuple that can be printed and repeated."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

BYTE_DAMAGE = ("flip", "byte", "cut", "remove", "insert", "repeat", "zeros", "garbage", "empty")
PATH_DAMAGE = ("missing", "folder", "dangling", "other")
JSON_VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 3, 17, 2**63, 10**40, 0.5, 1e308, "", "x", "a.tfrecord", "../a.tfrecord", "/etc/passwd",
    "a\0b", "\ud800", "0" * 64, "0" * 40, [], [[]], [None], ["a.tfrecord"], {}, {"a": 1}, {"weights.index": "0" * 64},
)  # fmt: skip

Damage = tuple[Any, ...]


def draw_bytes(chance: random.Random, name: str) -> Damage:
    """Draw damage to the bytes of a file: kind, file, offset as a share of its length, extent, seed of new bytes."""
    return (chance.choice(BYTE_DAMAGE), name, chance.random(), chance.choice([1, 2, 8, 30, 200]), chance.randrange(256))


def draw_json(chance: random.Random, name: str, keys: list[tuple[Any, ...]]) -> Damage:
    """Draw damage to a value of a JSON file: kind, file, key, new value."""
    return (chance.choice(["set", "set", "set", "unset"]), name, chance.choice(keys), chance.choice(JSON_VALUES))


def apply(folder: Path, damage: Damage, others: dict[str, bytes]) -> None:
    """Damage a file of a folder, if it exists; ``others`` has contents, by name, that may replace it."""
    kind, name = damage[:2]
    path = folder / name
    if not path.is_file() or path.is_symlink():
        return
    if kind in BYTE_DAMAGE:
        path.write_bytes(damaged(path.read_bytes(), damage))
    elif kind in ("set", "unset"):
        change_json(path, damage)
    elif kind == "other":
        path.write_bytes(others[damage[2]])
    else:
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "dangling":
            path.symlink_to("nowhere")


def damaged(data: bytes, damage: Damage) -> bytes:
    kind, _, share, extent, number = damage
    offset = int(share * len(data))
    new = random.Random(number).randbytes(extent)
    changes: dict[str, Callable[[], bytes]] = {
        "flip": lambda: (
            data[:offset] + bytes(b ^ 1 << number % 8 for b in data[offset : offset + 1]) + data[offset + 1 :]
        ),
        "byte": lambda: data[:offset] + bytes([number]) + data[offset + 1 :],
        "cut": lambda: data[:offset],
        "remove": lambda: data[:offset] + data[offset + extent :],
        "insert": lambda: data[:offset] + new + data[offset:],
        "repeat": lambda: data[:offset] + data[offset : offset + extent] + data[offset:],
        "zeros": lambda: data[:offset] + bytes(len(data[offset : offset + extent])) + data[offset + extent :],
        "garbage": lambda: data + new,
        "empty": lambda: b"",
    }
    return changes[kind]()


def change_json(path: Path, damage: Damage) -> None:
    """Set or remove a value; leave text that is no longer JSON unchanged."""
    kind, _, keys, value = damage
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return
    target = content
    for key in keys[:-1]:
        try:
            target = target[key]
        except (KeyError, IndexError, TypeError):
            return
    if not isinstance(target, (dict, list)) or isinstance(target, list) != isinstance(keys[-1], int):
        return
    if kind == "set":
        if isinstance(target, dict) or keys[-1] < len(target):
            target[keys[-1]] = value
    elif isinstance(target, dict):
        target.pop(keys[-1], None)
    else:
        del target[keys[-1] :]
    path.write_text(json.dumps(content), encoding="utf-8")


def list_keys(content: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the keys and indices that lead to each value of a JSON document."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [key for name, item in items for key in [(*prefix, name), *list_keys(item, (*prefix, name))]]
