"""Cached windows are reused only for the same key, are never incomplete, and are never unpickled."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_utils.squad import windows as cache
from data_utils.squad.windows import Geometry, Windows, cached_windows, load_windows, make_windows, save_windows
from data_utils.tokenizer import Vocabulary, load_tokenizer, read_vocabulary
from tests.support.squad_files import parsed, random_document

GEOMETRY = Geometry(32, 8, 6)


@pytest.fixture
def arguments(vocabulary: Vocabulary) -> dict[str, Any]:
    squad = parsed(random_document(1))
    return {"squad": squad, "vocabulary": vocabulary, "lower_case": True, "geometry": GEOMETRY, "labels": True}


def assert_equal(one: Windows, other: Windows) -> None:
    for a, b in zip([*one.texts, *one[1:]], [*other.texts, *other[1:]]):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def make(arguments: dict[str, Any]) -> Windows:
    tokenizer = load_tokenizer(str(arguments["vocabulary"].path), arguments["lower_case"])
    return make_windows(arguments["squad"], tokenizer, arguments["geometry"], arguments["labels"])


def test_windows_are_made_once(tmp_path: Path, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "deep" / "cache"
    assert load_windows(folder / "none.npz", {}) is None
    first = cached_windows(folder, **arguments)
    assert_equal(first, make(arguments))
    monkeypatch.setattr(cache, "make_windows", lambda *_: pytest.fail("windows were made again"))
    assert_equal(cached_windows(folder, **arguments), first)
    assert [path.suffix for path in folder.iterdir()] == [".npz"]


CHANGES = {
    "text": {"squad": parsed(random_document(2))},
    "case": {"lower_case": False},
    "labels": {"labels": False},
    "length": {"geometry": GEOMETRY._replace(max_seq_length=33)},
    "question": {"geometry": GEOMETRY._replace(max_query_length=7)},
    "stride": {"geometry": GEOMETRY._replace(doc_stride=7)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_settings_are_other_files(tmp_path: Path, arguments: dict[str, Any], change: str) -> None:
    cached_windows(tmp_path, **arguments)
    other = {**arguments, **CHANGES[change]}
    assert_equal(cached_windows(tmp_path, **other), make(other))
    assert len(list(tmp_path.iterdir())) == 2


def test_another_vocabulary_and_another_tokenizer_are_other_files(
    tmp_path: Path, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    cached_windows(folder, **arguments)
    path = tmp_path / "vocab.txt"
    path.write_text(arguments["vocabulary"].path.read_text(encoding="utf-8") + "kingly\n", encoding="utf-8")
    cached_windows(folder, **{**arguments, "vocabulary": read_vocabulary(path)})
    assert len(list(folder.iterdir())) == 2
    monkeypatch.setattr(cache.tokenizers, "__version__", "99")
    cached_windows(folder, **arguments)
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "pickle", "other key"])
def test_a_damaged_file_is_made_again(
    tmp_path: Path, arguments: dict[str, Any], damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = cached_windows(tmp_path, **arguments)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 3] ^= 1
    damaged = {"cut": content[: len(content) // 2], "flipped": flipped, "empty": b""}
    if damage in damaged:
        path.write_bytes(damaged[damage])
    elif damage == "pickle":
        np.savez(path, key=np.array([{"format": 1}], dtype=object))
    else:
        save_windows(path, {"format": 0}, expected)
    with caplog.at_level(logging.WARNING):
        assert_equal(cached_windows(tmp_path, **arguments), expected)
        assert "made again" in caplog.text
        caplog.clear()
        assert_equal(cached_windows(tmp_path, **arguments), expected)
        assert not caplog.records


def test_an_unwritable_folder_is_only_reported(
    tmp_path: Path, arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with caplog.at_level(logging.WARNING):
        assert_equal(cached_windows(blocked / "cache", **arguments), make(arguments))
    assert "not cached" in caplog.text
