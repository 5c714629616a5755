"""The commands of the README run as they stand, in order, in a folder with the files that they name; only shorter."""

from __future__ import annotations

import csv
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.fine_tuning_runs import BAD, GOOD, article, sentence, write_squad, write_sst2, write_tagged
from tests.support.runs import sentence as corpus_sentence

pytestmark = pytest.mark.long

SHORTER = {"run_pretraining.py": ["--total-num-train-samples", "768"]}
ONE_EPOCH = ["--num-epochs", "1"]
FETCHES_A_MODEL = ("bert-base-uncased", "configs/squad/squad_base.json")


def commands() -> list[list[str]]:
    """Return the Python commands of the README in order: those of its blocks, and those of its table of predictions."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)).replace("\\\n", " ")
    lines = [line.strip() for line in blocks.splitlines()]
    lines += re.findall(r"\| `(python -m tasks[^`]*)` \|", text)
    parsed = [shlex.split(line, comments=True) for line in lines if line.startswith("python ")]
    return [words[1:] for words in parsed if not set(words) & set(FETCHES_A_MODEL)]


def write_csv(path: Path, header: list[str], rows: list[list[str]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the project's files, and with those that a user has."""
    folder, chance = tmp_path_factory.mktemp("user"), random.Random(0)
    for path in ROOT.iterdir():
        if path.name not in ("runs", "data", "exported") and not path.name.startswith("."):
            (folder / path.name).symlink_to(path)
    (folder / "my").mkdir()
    for number in range(3):
        documents = ["\n".join(corpus_sentence(chance.randrange(900)) for _ in range(30)) for _ in range(60)]
        (folder / "my" / f"{number}.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    reviews = [[sentence(chance, chance.choice(words)), kind] for words, kind in ((GOOD, "good"), (BAD, "bad")) * 60]
    write_csv(folder / "reviews.csv", ["review", "sentiment"], reviews)
    write_csv(folder / "new.csv", ["review"], [[text] for text, _ in reviews[:5]])
    write_csv(folder / "pairs.csv", ["question", "answer"], [[f"what of {text}", text] for text, _ in reviews])
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text, _ in reviews[:5]), encoding="utf-8")
    for name in ("squad", "glue_data", "conll2003"):
        (folder / name).mkdir()
    write_squad(folder / "squad", train=40, dev=2)
    asked = article(chance, "one")["paragraphs"][0]
    write_csv(folder / "questions.csv", ["question", "context"], [[asked["qas"][0]["question"], asked["context"]]])
    write_sst2(folder / "glue_data")
    write_tagged(folder / "conll2003")
    shutil.copy(folder / "conll2003" / "test.txt", folder / "test.txt")
    return folder


def test_every_command_works_after_those_before_it(folder: Path) -> None:
    lines = commands()
    assert len(lines) > 15
    for words in lines:
        program = words[0]
        own = SHORTER.get(program, ONE_EPOCH if program.startswith("run_") and "--plan" not in words else [])
        given = [str(path) for word in words for path in (sorted(folder.glob(word)) if "*" in word else [word])]
        given = [os.path.relpath(word, folder) if word.startswith(str(folder)) else word for word in given]
        ended = subprocess.run(
            [sys.executable, *given, *(own if "--plan" not in words else [])],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{shlex.join(words)}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
    for made in ("runs/half128/report.html", "exported/reviews/config.json", "predictions.csv", "embeddings.npy"):
        assert (folder / made).is_file(), made
