"""Mistakes in files below a config, and in the arguments of the data commands, end in one line that names them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoints.export import __main__ as export
from data_utils.packing import __main__ as packing  # room: planners
from data_utils.squad import __main__ as squad
from data_utils.text import __main__ as text
from data_utils.text import sentences, vocabulary
from data_utils.tokenizer import SPECIAL_TOKENS
from execution import launch  # room: cluster
from tests.support.command_errors import assert_refused
from tests.support.config_files import run_command, write
from tests.support.pack_samples import sequence  # room: planners
from tests.support.pack_samples import write as write_records  # room: planners

SOME_TEXT = "One sentence is here. Another one follows it.\n\nA second document has words too. It ends.\n" * 20


def test_a_base_config_that_is_broken_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    last = tmp_path / "2.json"
    for number, name in enumerate(("1.json", "2.json")):
        write(tmp_path, {"extends": name}, f"{number}.json")
    for damage, words in (
        (lambda: last.write_text('{"sead": 1}'), ("sead", "2.json")),
        (lambda: last.write_bytes('{"seed": 1}'.encode("utf-16")), ("2.json", "UTF-8")),
        (lambda: (last.unlink(), last.symlink_to(last)), ("2.json",)),
    ):
        damage()
        refused = run_command("pretraining", ["--config", str(tmp_path / "0.json")])
        assert_refused(refused, capsys.readouterr(), *words)


# The data commands. Each function makes files and returns a command's arguments.


def prepare(folder: Path, content: str = SOME_TEXT, *flags: str) -> list[str]:
    given = ["--text", str(write(folder, content, "input")), "--output", str(folder / "out"), "--workers", "1"]
    return [*given, *flags]


def with_vocabulary(folder: Path, content: str) -> list[str]:
    vocabulary = str(write(folder, content, "vocab.txt"))
    return prepare(folder, SOME_TEXT, "--min-characters", "1", "--vocab-file", vocabulary)


def latin_1(folder: Path) -> list[str]:
    (folder / "corpus").mkdir()
    (folder / "corpus" / "sentences_000.txt").write_bytes("Ein Café.\n\n".encode("latin-1") * 50)
    vocabulary = write(folder, "\n".join([*SPECIAL_TOKENS, "a"]), "vocab.txt")
    return ["--sentences", str(folder / "corpus"), "--vocab-file", str(vocabulary), "--output", str(folder / "out")]


def picture(folder: Path, path: str) -> list[str]:  # room: planners
    write_records(folder / "data", [[sequence(number) for number in range(20)]])
    return ["--input", str(folder / "data"), "--output", str(folder / "out"), "--workers", "1", "--picture", path]


TOO_MANY = ["--replicas", "100000", "--", "true"]  # room: cluster


def in_the_way(folder: Path, name: str) -> list[str]:
    write(folder, "in the way", name)
    return prepare(folder)


def predictions(folder: Path, content: bytes) -> list[str]:
    asked = {"id": "q", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
    paragraph = {"context": "Ann came.", "qas": [asked]}
    (folder / "predictions.json").write_bytes(content)
    questions = write(folder, {"data": [{"title": "T", "paragraphs": [paragraph]}]}, "dev.json")
    return [str(questions), str(folder / "predictions.json")]


def a_zip(folder: Path) -> list[str]:
    with zipfile.ZipFile(folder / "model.zip", "w") as archive:
        archive.writestr("../../evil", "x")
    return ["--checkpoint", str(folder / "model.zip"), "--output", str(folder / "out")]


DATA: dict[str, tuple[Callable[[list[str]], int], Callable[[Path], list[str]], str]] = {
    "an empty text": (text.main, lambda folder: prepare(folder, ""), "contains no prose"),
    "a text that is too short": (text.main, lambda folder: prepare(folder, "Too short."), "--min-characters"),
    "a vocabulary that is JSON": (
        text.main, lambda folder: with_vocabulary(folder, '{"[PAD]": 0, "[UNK]": 1}'), "vocab.txt"
    ),
    "a corpus that is a file": (sentences.main, lambda folder: in_the_way(folder, "out"), "out"),
    "a vocabulary into its input": (
        vocabulary.main, lambda folder: ["--sentences", prepare(folder)[1], "--output", "input"], "is the input"
    ),
    "sentences that are not UTF-8": (text.main, latin_1, "sentences_000.txt"),
    "a vocabulary that is too small": (
        text.main, lambda folder: prepare(folder, SOME_TEXT, "--vocab-size", "50"), "--vocab-size 50"
    ),
    "more predictions than tokens": (
        text.main, lambda folder: prepare(folder, SOME_TEXT, "--max-predictions", "126"), "between 1 and 125"
    ),
    "a share of no documents": (
        text.main, lambda folder: prepare(folder, SOME_TEXT, "--documents-share", "0"), "reads no document"
    ),
    "no masked tokens": (
        text.main, lambda folder: prepare(folder, SOME_TEXT, "--masked-lm-prob", "0"), "--masked-lm-prob"
    ),
    "units that are not a number": (
        text.main, lambda folder: prepare(folder, SOME_TEXT, "--unit-megabytes", "nan"), "--unit-megabytes nan"
    ),
    "units of more bytes than a number has": (
        text.main, lambda folder: prepare(folder, SOME_TEXT, "--unit-megabytes", "1e308"), "--unit-megabytes 1e+308"
    ),
    "a data set in the output": (text.main, lambda folder: in_the_way(folder, "out/manifest.json"), "--overwrite"),
    "a data set of a folder without sentences": (
        text.main, lambda folder: ["--sentences", str(folder), "--output", str(folder / "o")], "no .txt files"
    ),
    "a picture nowhere": (packing.main, lambda folder: picture(folder, "/no/p.png"), "--picture"),  # room: planners
    "predictions in UTF-16": (
        squad.main, lambda folder: predictions(folder, '{"q": "Ann"}'.encode("utf-16")), "predictions.json"
    ),
    "an export of an archive": (export.main, a_zip, "model.zip"),
    "processes without ports": (launch.main, lambda _: TOO_MANY, "--processes"),  # room: cluster
}  # fmt: skip


@pytest.mark.parametrize("name", DATA)
def test_wrong_arguments_of_data_commands(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    command, make, word = DATA[name]
    assert_refused(command(make(tmp_path)), capsys.readouterr(), word)
