"""Questions are read from files and from the ``datasets`` library, which is not needed otherwise."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from data_utils.squad.examples import TRAIN, VALIDATION, open_squad, squad_document
from tests.support.squad_files import parsed, random_document
from utilities.errors import UserError

DOCUMENT = random_document(6)


def rows() -> list[dict[str, Any]]:
    """Return the document in the library's form, with one row per question."""
    return [
        {
            "id": entry["id"],
            "title": article["title"],
            "context": paragraph["context"],
            "question": entry["question"],
            "answers": {
                "text": [answer["text"] for answer in entry["answers"]],
                "answer_start": [answer["answer_start"] for answer in entry["answers"]],
            },
        }
        for article in DOCUMENT["data"]
        for paragraph in article["paragraphs"]
        for entry in paragraph["qas"]
    ]


def library(monkeypatch: pytest.MonkeyPatch, load: Any) -> None:
    module = ModuleType("datasets")
    module.load_dataset = load
    monkeypatch.setitem(sys.modules, "datasets", module)


def test_rows_of_the_library_become_a_document() -> None:
    assert parsed(squad_document(rows()))[:2] == parsed(DOCUMENT)[:2]


def test_a_file_by_its_name_or_its_path(tmp_path: Path) -> None:
    path = tmp_path / "train-v1.1.json"
    path.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    in_folder = open_squad(str(tmp_path), path.name, "squad", TRAIN)
    assert in_folder[:2] == parsed(DOCUMENT)[:2]
    assert open_squad("elsewhere", str(path), "squad", TRAIN) == in_folder


def test_without_a_folder_the_library_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def load_dataset(*arguments: Any, **options: Any) -> list[dict[str, Any]]:
        calls.append((arguments, options))
        return rows()

    library(monkeypatch, load_dataset)
    squad = open_squad(None, "dev-v1.1.json", "rajpurkar/squad", VALIDATION)
    assert squad[:2] == parsed(DOCUMENT)[:2]
    assert squad.origin == "rajpurkar/squad (validation)"
    assert calls == [(("rajpurkar/squad", None), {"split": "validation"})]
    assert squad.sha256 == open_squad(None, "dev-v1.1.json", "rajpurkar/squad", VALIDATION).sha256


def test_without_network_or_library_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route\nto host")

    library(monkeypatch, load_dataset)
    with pytest.raises(UserError, match=r"cannot get rajpurkar/squad \(ConnectionError: no route to host\)") as caught:
        open_squad(None, "dev-v1.1.json", "rajpurkar/squad", VALIDATION)
    assert "set dataset_dir to a folder with dev-v1.1.json" in str(caught.value)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"not installed.*dataset_dir.*dev-v1\.1\.json.*pip install -r requirements"):
        open_squad(None, "dev-v1.1.json", "rajpurkar/squad", VALIDATION)


def test_a_data_set_of_the_library(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    path = tmp_path / "validation.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()), encoding="utf-8")
    squad = open_squad(None, "dev-v1.1.json", str(tmp_path), VALIDATION)
    assert squad[:2] == parsed(DOCUMENT)[:2]
