"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from utilities.errors import UserError
from utilities.files import json_digest, only_command_in, parse_json, replacing, write_atomically


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


def test_a_folder_has_one_command_at_a_time(tmp_path):
    folder = tmp_path / "a" / "b"
    code = (
        "import sys; from pathlib import Path; from utilities.files import only_command_in\n"
        "with only_command_in(Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(folder)]
    pipe = subprocess.PIPE
    other = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert other.stdout is not None and other.stdout.readline() == "in\n"
    for _ in range(2):
        with pytest.raises(UserError, match="another command works in this folder"), only_command_in(folder):
            pass
    other.kill()  # the lock ends with the process
    other.communicate()
    with only_command_in(folder):
        (folder / "kept").touch()
    assert [path.name for path in folder.iterdir()] == ["kept"]
    with only_command_in(tmp_path / "empty" / "more"):
        pass
    assert not (tmp_path / "empty").exists()
    with only_command_in(folder / "kept"), only_command_in(folder / "kept" / "x"):
        pass  # those who use them say that they are no folders
