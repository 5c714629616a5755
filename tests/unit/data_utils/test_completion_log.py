"""Finished units are not repeated, unfinished ones are, and folders with other settings are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_utils.completion_log import (
    CompletionLog,
    Status,
    begin_recipe,
    clear_work,
    differences,
    folder_status,
    identify_files,
    mismatch_error,
)
from utilities.errors import UserError


def test_a_unit_is_done_when_its_files_are_what_was_written(tmp_path: Path) -> None:
    completion_log = CompletionLog.begin(tmp_path, "step", {"length": 128})
    assert completion_log.done(3) is None
    (tmp_path / "a.txt").write_text("hello")
    assert completion_log.finish(3, ["a.txt"], {"count": 1}) == {"count": 1}
    assert CompletionLog.begin(tmp_path, "step", {"length": 128}).done(3) == {"count": 1}
    assert completion_log.done(4) is None
    (tmp_path / "a.txt").write_text("hallo")
    assert completion_log.done(3) is None
    assert completion_log._replace(read_back=False).done(3) == {"count": 1}  # of the same size
    (tmp_path / "a.txt").write_text("hell")
    assert completion_log._replace(read_back=False).done(3) is None
    (tmp_path / "a.txt").unlink()
    assert completion_log.done(3) is None


def test_two_commands_in_one_folder(tmp_path: Path) -> None:
    completion_log = CompletionLog.begin(tmp_path, "step", {})
    clear_work(tmp_path)  # by the command that ends first
    with pytest.raises(UserError, match="another command works in this folder; let it end"):
        completion_log.finish(0, [], {})


@pytest.mark.parametrize("content", ["", "{", "[]", '{"files": 1}', "\x00"])
def test_an_unreadable_entry_is_ignored(tmp_path: Path, content: str) -> None:
    completion_log = CompletionLog.begin(tmp_path, "step", {})
    completion_log.finish(0, [], {})
    completion_log.path(0).write_text(content)
    assert completion_log.done(0) is None


def test_entries_of_other_settings_are_ignored(tmp_path: Path) -> None:
    CompletionLog.begin(tmp_path, "step", {"length": 128}).finish(0, [], {})
    other = CompletionLog.begin(tmp_path, "other", {"length": 128})
    other.finish(0, [], {})
    assert CompletionLog.begin(tmp_path, "step", {"length": 512}).done(0) is None
    assert CompletionLog.begin(tmp_path, "step", {"length": 128}).done(0) is None  # deleted when the others began
    assert other.done(0) == {}
    (tmp_path / ".a.host-1.tmp").touch()
    clear_work(tmp_path)
    assert not list(tmp_path.iterdir())


RECIPE = {"records": {"length": 128, "seed": 1}, "vocabulary": {"sha256": "ab"}}


def test_status_of_a_folder(tmp_path: Path) -> None:
    def status(recipe: dict = RECIPE) -> Status:
        return folder_status(tmp_path / "out", recipe, "manifest.json", "*.tfrecord")

    assert status() is Status.EMPTY
    (tmp_path / "out").mkdir()
    begin_recipe(tmp_path / "out", RECIPE)
    assert status() is Status.EMPTY  # nothing was done yet: the settings may change
    assert status({"records": {}}) is Status.EMPTY
    CompletionLog.begin(tmp_path / "out", "examples", RECIPE).finish(0, [], {})
    assert status() is Status.BEGUN
    assert status({**RECIPE, "vocabulary": {}}) is Status.OTHER
    recipe = json.loads((tmp_path / "out" / "recipe.json").read_text())
    assert differences(recipe, RECIPE) == []
    text = str(
        mismatch_error(tmp_path / "out", {"records": {"length": 384}, "vocabulary": {"sha256": "ab"}}, "a data set")
    )
    assert "records.length 128 there, 384 now; records.seed 1 there, unset now" in text
    assert "--overwrite" in text and "\n" not in text
    assert status({"records": RECIPE["records"]}) is Status.BEGUN  # the vocabulary is not known yet
    (tmp_path / "out" / "manifest.json").touch()
    assert status() is Status.COMPLETE
    (tmp_path / "out" / "recipe.json").write_text("{")
    assert status() is Status.OTHER
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="a file, not a folder"):
        folder_status(tmp_path / "file", RECIPE, "manifest.json", "*.tfrecord")


def test_inputs_are_identified_without_reading_them(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"x" * 100_000)
    second.write_bytes(b"y")
    before = identify_files([first, second])
    assert before["files"] == 2
    assert before["bytes"] == 100_001
    (tmp_path / "moved").mkdir()
    moved = [path.rename(tmp_path / "moved" / path.name) for path in (first, second)]
    assert identify_files(moved) == before
    assert identify_files(moved[::-1]) != before
    moved[0].write_bytes(b"x" * 99_999 + b"z")
    assert identify_files(moved) != before
