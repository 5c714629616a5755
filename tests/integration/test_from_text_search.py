"""``run_from_text.py --for search`` from a tiny text and a tiny released model to one of sentence-transformers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from data_utils.demo_corpus import write_demo_corpus
from model.huggingface import build_hf_model
from model.tasks import PRETRAINING
from tests import ROOT
from tests.support.bert_pairs import architecture
from tests.support.checkpoint_writers import safetensors
from tests.support.pytorch_names import pytorch_arrays
from tests.support.pytorch_process import NEEDS_PYTORCH, run_pytorch
from tests.support.runs import read_json, read_lines, write_json

pytestmark = pytest.mark.slow

HOURS = "0.5"  # half an hour; the text is so short that it ends much earlier
LENGTH = "256"  # as many tokens of a text as the module of PyTorch reads
KINDS = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "mine.txt"
    write_demo_corpus(path, words=40_000, packages=())
    return path


@pytest.fixture(scope="module")
def released(text: Path) -> Path:
    """A folder of sentence-transformers with random weights, which knows the letters and the words of the text."""
    folder = text.parent / "released"
    folder.mkdir()
    words = sorted(set(re.findall(r"[a-z]+|[^a-z\s]", text.read_text("utf-8").lower())))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    model = build_hf_model(
        PRETRAINING, architecture(vocab_size=len(pieces), max_position_embeddings=256), seed=1, labels=2
    )
    arrays = {name: array for name, array in pytorch_arrays(model).items() if not name.startswith("cls.")}
    safetensors(model, folder, {name.removeprefix("bert."): array for name, array in arrays.items()})
    write_json(folder / "config.json", {**read_json(folder / "config.json"), "architectures": ["BertModel"]})
    modules = [{"idx": n, "name": str(n), "path": path, "type": f"a.{kind}"} for n, (kind, path) in enumerate(KINDS)]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "1_Pooling").mkdir()
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 200})
    return folder


def command(text: Path, released: Path, folder: Path) -> list[str]:
    words = ["--for", "search", "--start-from", str(released), "--lengths", LENGTH, "--execution.precision", "float32"]
    words += ["--text", str(text), "--hours", HOURS, "--name", "mine", "--output-dir", str(folder)]
    return [sys.executable, str(ROOT / "run_from_text.py"), *words]


@pytest.fixture(scope="module")
def done(text: Path, released: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("done")
    outcome = subprocess.run(command(text, released, folder), cwd=ROOT, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert "it is among the first ten" in outcome.stdout and "masked-LM" not in outcome.stdout
    return folder / "mine"


def recalls(folder: Path, model: Path) -> list[float]:
    """Return how often the first half of a held-out passage finds the second one, by PyTorch and numpy."""
    pairs = [list(line.values()) for line in read_lines(folder / "data" / LENGTH / "held_out.jsonl")]
    write_json(folder / "samples.json", {"texts": pairs})
    run_pytorch("tests.support.pytorch_embeddings", folder, model)
    vectors = np.load(folder / "real.npy")
    cosines = vectors[::2] @ vectors[1::2].T
    ranks = (cosines > np.diag(cosines)[:, None]).sum(axis=1)
    return [float((ranks < count).mean()) for count in (1, 10)]


@NEEDS_PYTORCH
def test_the_recalls_are_computed_again_from_the_folders_by_pytorch(done: Path, released: Path) -> None:
    result = read_json(done / "result.json")
    pairs = len(read_lines(done / "data" / LENGTH / "pairs.jsonl"))
    (updates,) = result["updates"].values()
    passes = updates * 32 / pairs
    assert float({name: value for name, value, _ in result["choices"]}["passes"]) == pytest.approx(passes, abs=0.06)
    assert any("read 10 times" in line for line in result["advice"]) == (updates + 1 >= int(10 * pairs / 32))
    one = 1 / len(read_lines(done / "data" / LENGTH / "held_out.jsonl"))
    befores, afters = recalls(done, released), recalls(done, done / "model")
    assert afters != befores
    page = (done / "index.html").read_text("utf-8")
    for (what, before, after), *expected in zip(result["recalls"], befores, afters):
        assert what.startswith(f"held-out passages of {1 / one:,.0f}: ")
        assert [before, after] == pytest.approx(expected, abs=2 * one)
        assert f"{before:.1%}" in page and f"{after:.1%}" in page


def test_the_model_pools_and_scales_as_the_released_one(done: Path, released: Path) -> None:
    modules = [module["type"].rpartition(".")[2] for module in read_json(done / "model" / "modules.json")]
    assert modules == [kind for kind, _ in KINDS]
    assert read_json(done / "model" / "sentence_bert_config.json")["max_seq_length"] == 200
    before, after = (load_file(each / "model.safetensors") for each in (released, done / "model"))
    name = "embeddings.word_embeddings.weight"
    assert before[name].shape == after[name].shape and not np.array_equal(before[name], after[name])
