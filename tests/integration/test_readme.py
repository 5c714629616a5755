"""The commands of the README and of guides run as they stand, in order, with the files that they name; only shorter."""

from __future__ import annotations

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
from tests.support.runs import write_csv

pytestmark = pytest.mark.long

SHORTER = {"run_pretraining.py": ["--total-num-train-samples", "768"]}
ONE_EPOCH = ["--num-epochs", "1"]
FETCHES_A_MODEL = (
    *("bert-base-uncased", "bert-base-chinese", "configs/squad/squad_base.json", "configs/glue/glue_base.json"),
    *("configs/token_classification/conll2003_base.json", "configs/sentence_embedding/base.json"),
    "configs/clue/clue_base.json",
)  # fmt: skip


def steps(document: Path) -> list[list[str] | str]:
    """Return the steps of a document's blocks in order: the words of Python commands, and lines for a shell."""
    text = document.read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)).replace("\\\n", " ")
    tables = re.findall(r"\| `(python -m tasks[^`]*)` \|", text)
    found: list[list[str] | str] = []
    for line in [*blocks.splitlines(), *tables]:
        if line.startswith("python "):
            found.append(shlex.split(line, comments=True)[1:])
        elif found and isinstance(found[-1], str):
            found[-1] += f"{line}\n"
        else:
            found.append(f"{line}\n")
    return [step for step in found if isinstance(step, str) or not set(step) & set(FETCHES_A_MODEL)]


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


def follow(words: list[str], folder: Path, *own: str) -> None:
    """Run a command of Python in a folder, with flags of the test's own."""
    given = [str(path) for word in words for path in (sorted(folder.glob(word)) if "*" in word else [word])]
    given = [os.path.relpath(word, folder) if word.startswith(str(folder)) else word for word in given]
    ended = subprocess.run([sys.executable, *given, *own], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{shlex.join(words)}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"


@pytest.fixture(scope="module")
def followed(folder: Path) -> Path:
    """The user's folder after the commands of the README."""
    commands = [step for step in steps(ROOT / "README.md") if not isinstance(step, str)]
    assert len(commands) > 15
    for words in commands:
        program, planned = words[0], "--plan" in words
        follow(words, folder, *([] if planned else SHORTER.get(program, ONE_EPOCH if "run_" in program else [])))
    return folder


def test_every_command_works_after_those_before_it(followed: Path) -> None:
    for made in ("runs/half128/report.html", "exported/reviews/config.json", "predictions.csv", "embeddings.npy"):
        assert (followed / made).is_file(), made


@pytest.mark.parametrize("guide", ["classification", "embeddings", "entities", "squad"])
def test_a_guide_can_be_followed_after_the_readme(guide: str, followed: Path, tmp_path: Path) -> None:
    """In a folder with the benchmarks' data and what the README made, but with no table of the user."""
    for path in followed.iterdir():
        if path.name != "runs" and path.suffix not in (".csv", ".npy", ".txt"):
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "half128").symlink_to(followed / "runs" / "half128")
    for step in steps(ROOT / "guides" / f"{guide}.md"):
        if not isinstance(step, str):
            follow(step, tmp_path)
        elif "$ " not in step:  # an example with its output
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # python is this one
            subprocess.run(["bash", "-euc", step], cwd=tmp_path, check=True, env={**os.environ, "PATH": path})
