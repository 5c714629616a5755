"""Mistakes around a config: in files next to it, and in the arguments of the data commands.

Each ends in status 2 and one line that names what is wrong; what is only unusual works.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoints.export import __main__ as export
from data_utils.doctor import __main__ as doctor
from data_utils.packing import __main__ as packing
from data_utils.squad import __main__ as squad
from data_utils.text import __main__ as text
from data_utils.text import sentences, vocabulary
from data_utils.tokenizer import SPECIAL_TOKENS
from execution import launch
from tests.support.command_errors import assert_refused
from tests.support.config_files import TINY, run_command, write
from tests.support.pack_samples import sequence
from tests.support.pack_samples import write as write_records

SOME_TEXT = "One sentence is here. Another one follows it.\n\nA second document has words too. It ends.\n" * 20


# Files around a config. Each function changes a folder that has a good run.json, and returns further arguments.


def overlay(content: Any, name: str = "overlay.json") -> Callable[[Path], list[str]]:
    """Give the good config and another file to --config."""

    def make(folder: Path) -> list[str]:
        path = folder / name
        path.write_bytes(content) if isinstance(content, bytes) else write(folder, content, name)
        return ["--config", str(folder / "run.json"), str(path)]

    return make


def chain(*texts: str) -> Callable[[Path], list[str]]:
    """Give the first of several files, which extend one another."""

    def make(folder: Path) -> list[str]:
        for number, content in enumerate(texts):
            write(folder, content, f"{number}.json")
        return ["--config", str(folder / "0.json")]

    return make


def a_loop_of_links(folder: Path) -> list[str]:
    (folder / "one.json").symlink_to(folder / "two.json")
    (folder / "two.json").symlink_to(folder / "one.json")
    return ["--config", str(folder / "one.json")]


CONFIG_FILES: dict[str, tuple[Callable[[Path], list[str]], tuple[str, ...]]] = {
    "the base's base is broken": (chain('{"extends": "1.json"}', '{"extends": "2.json"}', "{"), ("2.json",)),
    "a base with an unknown key": (chain('{"extends": "1.json"}', '{"sead": 1}'), ("sead", "1.json")),
    "a second file that breaks a rule of the first": (
        overlay({"bert_config": {"num_attention_heads": 3}}), ("num_attention_heads",)
    ),
    "UTF-16": (overlay(json.dumps(TINY).encode("utf-16")), ("overlay.json", "UTF-8")),
    "a loop of links": (a_loop_of_links, ("one.json",)),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIG_FILES)
def test_broken_config_files(name: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write(tmp_path, TINY)
    make, words = CONFIG_FILES[name]
    assert_refused(run_command("pretraining", make(tmp_path)), capsys.readouterr(), *words)


# The data commands. Each function makes files and returns a command's arguments.


def prepare(content: bytes, *flags: str, option: str = "--text") -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        (folder / "input").write_bytes(content)
        return [option, str(folder / "input"), "--output", str(folder / "out"), "--workers", "1", *flags]

    return make


def some_text(*flags: str) -> Callable[[Path], list[str]]:
    return prepare(SOME_TEXT.encode(), *flags)


def output_is_input(option: str) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        (folder / "input").write_text(SOME_TEXT)
        return [option, str(folder / "input"), "--output", "input"]

    return make


def with_vocabulary(content: bytes) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        (folder / "vocab.txt").write_bytes(content)
        return some_text("--min-characters", "1", "--vocab-file", str(folder / "vocab.txt"))(folder)

    return make


def latin_1(folder: Path) -> list[str]:
    (folder / "corpus").mkdir()
    (folder / "corpus" / "sentences_000.txt").write_bytes("Ein Café.\n\n".encode("latin-1") * 50)
    vocabulary = write(folder, "\n".join([*SPECIAL_TOKENS, "a"]), "vocab.txt")
    arguments = ["--sentences", str(folder / "corpus"), "--vocab-file", str(vocabulary)]
    return [*arguments, "--output", str(folder / "out"), "--workers", "1"]


def records(*flags: str) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        write_records(folder / "data", [[sequence(number) for number in range(20)]])
        return ["--input", str(folder / "data"), "--output", str(folder / "out"), "--workers", "1", *flags]

    return make


def output_is_a_file(make: Callable[[Path], list[str]]) -> Callable[[Path], list[str]]:
    def made(folder: Path) -> list[str]:
        (folder / "out").write_text("in the way")
        return make(folder)

    return made


def output_contains(name: str, make: Callable[[Path], list[str]]) -> Callable[[Path], list[str]]:
    def made(folder: Path) -> list[str]:
        (folder / "out").mkdir()
        (folder / "out" / name).write_text("{}")
        return make(folder)

    return made


def answers(predictions: bytes, expected: bytes = b"") -> Callable[[Path], list[str]]:
    asked = {"id": "q", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
    paragraph = {"context": "Ann came.", "qas": [asked]}
    good = json.dumps({"data": [{"title": "T", "paragraphs": [paragraph]}]}).encode()

    def make(folder: Path) -> list[str]:
        (folder / "dev.json").write_bytes(expected or good)
        (folder / "predictions.json").write_bytes(predictions)
        return [str(folder / "dev.json"), str(folder / "predictions.json")]

    return make


def a_zip(folder: Path) -> list[str]:
    with zipfile.ZipFile(folder / "model.zip", "w") as archive:
        archive.writestr("../../evil", "x")
    return ["--checkpoint", str(folder / "model.zip"), "--output", str(folder / "out")]


DATA: dict[str, tuple[Callable[[list[str]], int], Callable[[Path], list[str]], str]] = {
    "an empty text": (text.main, prepare(b""), "contains no prose"),
    "a text that is too short": (text.main, prepare(b"Too short."), "--min-characters"),
    "a vocabulary that is JSON": (text.main, with_vocabulary(b'{"[PAD]": 0, "[UNK]": 1}'), "vocab.txt"),
    "a corpus that is a file": (sentences.main, output_is_a_file(some_text()), "out"),
    "a vocabulary into its input": (vocabulary.main, output_is_input("--sentences"), "is the input"),
    "sentences that are not UTF-8": (text.main, latin_1, "sentences_000.txt"),
    "a vocabulary that is too small": (text.main, some_text("--vocab-size", "50"), "--vocab-size 50"),
    "more predictions than tokens": (text.main, some_text("--max-predictions", "126"), "between 1 and 125"),
    "no masked tokens": (text.main, some_text("--masked-lm-prob", "0"), "--masked-lm-prob"),
    "units that are not a number": (text.main, some_text("--unit-megabytes", "nan"), "--unit-megabytes nan"),
    "a data set in the output folder": (text.main, output_contains("manifest.json", some_text()), "--overwrite"),
    "a data set that is a file": (text.main, output_is_a_file(some_text()), "a file, not a folder"),
    "a data set of a folder without sentences": (
        text.main, lambda folder: ["--sentences", str(folder), "--output", str(folder / "o")], "no .txt files"
    ),
    "a picture in a missing folder": (packing.main, records("--picture", "/no/such/folder/p.png"), "--picture"),
    "the doctor on a file": (
        doctor.main, lambda folder: [write(folder, "x", "a.tfrecord").as_posix(), "--workers", "1"], "a.tfrecord"
    ),
    "predictions in UTF-16": (squad.main, answers('{"q": "Ann"}'.encode("utf-16")), "predictions.json"),
    "an export of an archive": (export.main, a_zip, "model.zip"),
    "the launcher with more processes than there are ports": (
        launch.main, lambda folder: ["--replicas", "100000", "--", "true"], "--processes"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DATA)
def test_wrong_arguments_of_data_commands(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    command, make, word = DATA[name]
    assert_refused(command(make(tmp_path)), capsys.readouterr(), word)
