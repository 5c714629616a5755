"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from utilities.files import json_digest, parse_json, replacing, write_atomically


def test_content_is_flushed_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given, name=name, call=original: (calls.append(name), call(*given))[1])
    write_atomically(tmp_path / "a.txt", "text")
    assert calls == ["fsync", "replace"]
    assert (tmp_path / "a.txt").read_text() == "text"


def test_failure_leaves_only_the_old_file(tmp_path: Path) -> None:
    path = write_atomically(tmp_path / "a.txt", "old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as stream:
        stream.write(b"new")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_json_with_repeated_keys_and_half_characters_is_refused() -> None:
    good = '{"a": [{"a": 1}, {"a": 2}], "b": "\\ud83d\\ude00 \\\\ud800"}'
    assert parse_json(good) == parse_json(good.encode()) == {"a": [{"a": 1}, {"a": 2}], "b": "😀 \\ud800"}
    with pytest.raises(ValueError, match='the key "a" appears twice'):
        parse_json('[{"b": {"a": 1, "a": 1}}]')
    with pytest.raises(ValueError, match="half a character"):
        parse_json(b'{"\\uDe00": 1}')


def test_digests_do_not_depend_on_the_order_of_keys() -> None:
    assert json_digest({"a": 1, "b": ["x"]}) == json_digest({"b": ["x"], "a": 1})
    assert json_digest({"a": 1}) != json_digest({"a": 2})
