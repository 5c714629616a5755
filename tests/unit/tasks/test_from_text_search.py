"""Pairs of ``run_from_text.py --for search``: of which text they are made, and what is refused."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from data_utils.text.held_out import choose_held_out, select
from tasks.from_text import search
from tasks.from_text.choice import choose
from tasks.from_text.command import main
from tasks.from_text.folder import Folder
from tasks.from_text.inputs import Machine, Text
from tasks.from_text.phases import Phase
from tasks.from_text.search import HELD_OUT, PAIRS, adapt, passages, prepare_pairs, write_pairs
from tests.support.runs import read_lines
from utilities.errors import UserError

HALF = 60


def corpus(folder: Path, documents: int) -> list[list[str]]:
    """Write sentence files of documents of 3 to 30 sentences, with one passage that most documents have."""
    chance, found = random.Random(3), []
    for number in range(documents):
        count = chance.randint(3, 30)
        sentences = [f"Document {number} says {chance.random():.9f} in its sentence {place}." for place in range(count)]
        found.append([*(["All rights are reserved by those who own them, and by nobody else."] * 2), *sentences])
    folder.mkdir()
    for part in range(2):
        content = "\n\n".join("\n".join(each) for each in found[part::2])
        (folder / f"sentences_00{part}.txt").write_text(content + "\n\n", encoding="utf-8")
    return found


@pytest.mark.parametrize("documents", [400, 6])  # of few documents, parts are held out
def test_pairs_are_neighbours_in_one_document_and_held_out_text_is_in_none(
    tmp_path: Path, documents: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = corpus(tmp_path / "corpus", documents)
    monkeypatch.setattr(search, "PAIRS_OF_UPDATE", 1)  # of which so few documents have more
    write_pairs(tmp_path, 0.2, HALF)
    trained, held_out = (read_lines(tmp_path / name) for name in (PAIRS, HELD_OUT))
    texts = [" ".join(sentences) for sentences in written]
    for pair in [*trained, *held_out]:
        assert min(len(pair["anchor"]), len(pair["positive"])) >= HALF
        assert any(f"{pair['anchor']} {pair['positive']}" in text for text in texts)
    files = sorted((tmp_path / "corpus").glob("*.txt"))
    chosen = choose_held_out(files, 0.2)
    rest = b"".join(select(path.read_bytes(), chosen, False) for path in files).decode().replace("\n", " ")
    out = b"".join(select(path.read_bytes(), chosen, True) for path in files).decode().replace("\n", " ")
    assert all(pair["anchor"] in rest and pair["positive"] in rest for pair in trained)
    assert all(pair["anchor"] in out and pair["positive"] in out for pair in held_out)
    halves = [half for pair in [*trained, *held_out] for half in pair.values()]
    assert len(halves) == len(set(halves)), "no text is there twice, as in-batch negatives need it"
    assert len(held_out) > 0 and len(trained) > 2 * len(held_out)


def test_a_passage_ends_with_a_sentence() -> None:
    assert list(passages(b"One two.\nThree four.\nFive.\nSix seven eight.\nNine", 12)) == [
        "One two. Three four.", "Five. Six seven eight."
    ]  # fmt: skip


def test_a_pass_has_each_pair_once_and_the_released_model_is_judged_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus(tmp_path / "text", 400)
    known = "document says in its sentence all rights are reserved by those who own them and nobody else . ,"
    digits = [f"{mark}{digit}" for mark in ("", "##") for digit in range(10)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *known.split(), *digits]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    text, machine = Text(0.4, 80_000, 400, 0.0, "LATIN", False, False), Machine(2, "", 8.0, "", "")
    recipe = adapt(choose(text, machine, 0.5, (128,), str(tmp_path)), text)
    judged: list[str] = []
    monkeypatch.setattr(search, "train", lambda task, path, name: judged.append(f"{task}, {path.name}, {name}"))
    source = ["--text", *map(str, sorted((tmp_path / "text").glob("*.txt"))), "--workers", "1"]
    found = prepare_pairs(Folder(tmp_path / "mine", time.monotonic()), recipe, source, [Phase("128", {})])
    pairs = len(read_lines(tmp_path / "mine" / "data" / "128" / PAIRS))
    assert recipe.with_training_tokens(found.tokens).pass_updates == pytest.approx(pairs / 32, rel=1e-3) and pairs > 100
    assert judged == ["sentence_embedding, before.json, before"] and "masked" not in [c.name for c in recipe.choices]


def test_too_little_text_is_refused(tmp_path: Path) -> None:
    corpus(tmp_path / "corpus", 6)
    with pytest.raises(UserError, match="are too few; give more text"):
        write_pairs(tmp_path, 0.2, 2_000)
    assert not (tmp_path / PAIRS).exists()


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ([], "--start-from FOLDER"),
        (["--start-from", ".", "--lengths", "32", "128"], "give one number"),
        (["--start-from", ".", "--embedding.label", "score"], "the command makes the pairs"),
        (["--start-from", ".", "--vocab-file", "v.txt"], "the weights of --start-from decide"),
        (["--start-from", ".", "--use-next-sentence"], "--use-next-sentence"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], part: str
) -> None:
    text = tmp_path / "mine.txt"
    text.write_text("A cat.\n", encoding="utf-8")
    words = ["--for", "search", "--text", str(text), "--hours", "1", "--output-dir", str(tmp_path / "runs"), *flags]
    assert main(words, time.monotonic()) == 2
    refused = capsys.readouterr().err
    assert part in refused and len(refused.splitlines()) == 1 and not (tmp_path / "runs").exists()
