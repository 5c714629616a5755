"""A folder is used for what it was begun with, and for nothing else; inputs are known by their ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from data_utils.recipe import check_folder, clear_work, identify_files, prepare_folder
from data_utils.shards import Step
from utilities.errors import UserError

RECIPE: dict[str, Any] = {"records": {"length": 128, "seed": 1}, "vocabulary": {"sha256": "ab"}}
OTHER = {"records": {"length": 384}, "vocabulary": {"sha256": "ab"}}


def test_a_folder_that_is_begun_is_used_for_the_same_recipe(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert not prepare_folder(out, RECIPE, False)
    assert not prepare_folder(out, OTHER, False)  # nothing was made yet: the settings may change
    assert not prepare_folder(out, RECIPE, False)
    Step(out, "examples").finish(0, [], {})
    assert not prepare_folder(out, RECIPE, False)
    assert Step(out, "examples").done(0) == {}
    check_folder(out, {"records": RECIPE["records"]}, False)  # the vocabulary is not known yet
    with pytest.raises(UserError, match=r"records\.length 128 there, 384 now; records\.seed 1") as error:
        prepare_folder(out, OTHER, False)
    assert "--overwrite" in str(error.value) and "\n" not in str(error.value)
    (out / "old.tfrecord").touch()
    assert not prepare_folder(out, OTHER, True)
    assert Step(out, "examples").done(0) is None and not (out / "old.tfrecord").exists()


def test_a_complete_folder(tmp_path: Path) -> None:
    prepare_folder(tmp_path, RECIPE, False)
    (tmp_path / "manifest.json").touch()
    (tmp_path / ".a.host-1.tmp").touch()  # of a run that was killed at the very end
    assert prepare_folder(tmp_path, RECIPE, False)
    assert not list(tmp_path.glob(".*"))
    assert prepare_folder(tmp_path, RECIPE, True, keep_complete=True)
    assert not prepare_folder(tmp_path, RECIPE, True)  # made again
    assert not (tmp_path / "manifest.json").exists()
    (tmp_path / "manifest.json").touch()
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(UserError, match="--overwrite"):
        prepare_folder(tmp_path, RECIPE, False)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="a file, not a folder"):
        prepare_folder(tmp_path / "file", RECIPE, False)
    clear_work(tmp_path)


def test_the_folder_of_a_tokenizer_is_not_used(tmp_path: Path) -> None:
    """Its settings were deleted."""
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text("{}")
    with pytest.raises(UserError, match=r"contains tokenizer_config\.json already; choose another folder"):
        prepare_folder(tmp_path, RECIPE, False)
    assert settings.exists() and not prepare_folder(tmp_path, RECIPE, True)
    settings.touch()
    assert not prepare_folder(tmp_path, OTHER, False)  # begun here, and nothing made yet


def test_inputs_are_identified_by_their_names_and_content(tmp_path: Path) -> None:
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
    ends = identify_files(moved, ends_only=True)
    moved[0].write_bytes(b"x" * 50_000 + b"y" + b"x" * 49_999)
    assert identify_files(moved) != before
    assert identify_files(moved, ends_only=True) == ends  # of records, which are not edited
