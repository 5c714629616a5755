"""The same documents give the same records from every kind of input, even if the preparation is killed and resumed."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from data_utils.demo_corpus import write_demo_corpus
from data_utils.text import sentences as step
from tests import ROOT
from tests.integration.test_preprocessing import run
from tests.integration.test_preprocessing_restart import stopped_after, use_small_shards
from tests.support.runs import content

pytestmark = pytest.mark.slow

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
OPTIONS = ["--max-seq-length", 32, "--max-predictions", 5, "--vocab-size", 2000, "--duplicate-factor", 2]


def records(folder: Path) -> dict[str, bytes]:
    """Return everything that training reads; how sentences are divided into files depends on the parts of the input."""
    return {
        name: data for name, data in content(folder).items() if not name.startswith("corpus") and name != "recipe.json"
    }


def sentences(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / "corpus").glob("sentences_*.txt")))


def write_zstd(path: Path, lines: list[str]) -> Path:
    with open(path, "wb") as file, pyarrow.CompressedOutputStream(file, "zstd") as stream:
        stream.write("".join(lines).encode())
    return path


def write_parquet(path: Path, texts: list[str]) -> Path:
    parquet.write_table(pyarrow.table({"text": texts}), path, row_group_size=50)
    return path


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("text")
    write_demo_corpus(folder / "a.txt", words=30_000, packages=())
    documents = (folder / "a.txt").read_text().strip().split("\n\n")
    return [json.dumps({"text": document}) + "\n" for document in documents]


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_shards(monkeypatch)


@pytest.fixture(scope="module")
def data_set(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("set")
    (folder / "a.jsonl").write_text("".join(lines))
    assert run("--jsonl", folder / "a.jsonl", "--output", folder / "out", "--workers", 1, *OPTIONS) == 0
    return folder / "out"


def from_zstd(lines: list[str], folder: Path) -> list[object]:
    return ["--jsonl", write_zstd(folder / "a.jsonl.zst", lines)]


def from_parquet(lines: list[str], folder: Path) -> list[object]:
    return ["--parquet", write_parquet(folder / "a.parquet", [json.loads(line)["text"] for line in lines])]


def from_hub(lines: list[str], folder: Path) -> list[object]:
    pytest.importorskip("datasets")
    (folder / "hub").mkdir()
    (folder / "hub" / "train.jsonl").write_text("".join(lines))
    return ["--hub-dataset", folder / "hub"]


def from_standard_input(lines: list[str], folder: Path) -> list[object]:
    return ["--jsonl", "-"]


@pytest.mark.parametrize(
    "make", [pytest.param(from_zstd, marks=pytest.mark.long), from_parquet, from_hub, from_standard_input]
)
def test_records_do_not_depend_on_the_format_of_the_text(
    make: Callable[[list[str], Path], list[object]],
    lines: list[str],
    data_set: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    arguments = (*make(lines, tmp_path), "--output", out, "--workers", 1, *OPTIONS)

    def give_standard_input() -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("".join(lines).encode())))

    give_standard_input()
    with stopped_after(5, step, "write_atomically"):
        run(*arguments)
    shards = len(list((out / "corpus").glob("sentences_*.txt")))
    assert shards == 5
    give_standard_input()
    assert run(*arguments) == 0
    assert len(list((out / "corpus").glob("sentences_*.txt"))) > shards
    assert sentences(out) == sentences(data_set)
    assert records(out) == records(data_set)
    assert not list(out.rglob(".*")) and not list(out.rglob("standard_input*"))


def test_workers_and_a_pipe_give_the_same_records(lines: list[str], data_set: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "data_utils.text", "--jsonl", "-", "--workers", "2", "--output", tmp_path / "out"]
    packed = gzip.compress("".join(lines).encode())
    subprocess.run([*map(str, [*command, *OPTIONS])], cwd=ROOT, input=packed, check=True, capture_output=True)
    assert records(tmp_path / "out") == records(data_set)
