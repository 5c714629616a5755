"""A user's whole way, by commands: from a dump to records, pre-training, fine-tuning, export, and loading in PyTorch.

`.ci/run` also runs this file on the oldest and the newest Python that it finds.
"""

from __future__ import annotations

import bz2
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tasks import load
from tests import ROOT
from tests.support.runs import NOUNS, sentence
from tests.support.wiki_dumps import HEAD, TAIL, page

pytestmark = pytest.mark.long

SIZES = {
    "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 256,
    "max_position_embeddings": 64,
}  # fmt: skip
SHARED = {
    "bert_config": SIZES,
    "global_batch": {"micro_batch_size": 4},
    "optimizer_opts": {"name": "AdamW", "learning_rate": {"max_learning_rate": 0.001}},
    "global_batches_per_log": 2,
    "execution": {"xla": False, "platform": "software"},
    "embedding_serialization_factor": 1,
    "max_seq_length": 32,
}
# Loads a folder in PyTorch like its users, and writes the logits of one sentence.
PYTORCH = """
import sys, numpy, torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
folder, text, output = sys.argv[1:]
model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
inputs = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
with torch.no_grad():
    numpy.save(output, model(**inputs).logits.numpy())
"""


def run(*command: object) -> str:
    ended = subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def train(root: Path, program: str, name: str, *arguments: object, **changes: object) -> Path:
    config = root / f"{name}.json"
    config.write_text(json.dumps({**SHARED, "output_dir": str(root / "runs"), **changes}), encoding="utf-8")
    run(program, "--config", config, *arguments)
    return root / "runs" / name


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run ``runs/pretraining`` on records from a dump of twenty articles."""
    root = tmp_path_factory.mktemp("chain")
    pytest.importorskip("wikiextractor")
    pages = "".join(
        page(f"Page {number}", " ".join(sentence(number * 7 + each) for each in range(12))) for number in range(20)
    )
    (root / "dump.xml.bz2").write_bytes(bz2.compress((HEAD + pages + TAIL).encode()))
    run(
        "-m", "data_utils.text", "--dump", root / "dump.xml.bz2", "--output", root / "records", "--vocab-size", 256,
        "--max-seq-length", 32, "--max-predictions", 5, "--workers", 1,
    )  # fmt: skip
    train(
        root, "run_pretraining.py", "pretraining", "--dataset-dir", root / "records",
        max_predictions_per_seq=5, total_num_train_samples=16,
    )  # fmt: skip
    return root


def test_classification_and_export(pretrained: Path) -> None:
    folder = pretrained / "SST-2"
    folder.mkdir()
    rows = "".join(f"{sentence(number)}\t{number % 2}\n" for number in range(16))
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text(f"sentence\tlabel\n{rows}", encoding="utf-8")
    fine_tuned = train(
        pretrained, "run_seq_classification.py", "classification", "--dataset-dir", folder,
        "--pretrained-ckpt-path", pretrained / "runs" / "pretraining", glue_task="sst2", num_epochs=1,
    )  # fmt: skip
    exported = pretrained / "exported"
    run("-m", "checkpoints.export", "--checkpoint", fine_tuned, "--output", exported)
    assert "positive" in run("-m", "tasks.classify", "--checkpoint", exported, sentence(3))

    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs PyTorch for the last step: pip install -r requirements-bench.txt")
    environment = {**os.environ, "USE_TF": "0", "USE_TORCH": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", PYTORCH, str(exported), sentence(3), str(pretrained / "logits.npy")]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    model = load(str(fine_tuned))
    with model.call(1, "the text") as call:
        ours = model.answering.logits(call, [(sentence(3),)])
    np.testing.assert_allclose(np.load(pretrained / "logits.npy"), ours, atol=1e-5)


def test_squad(pretrained: Path) -> None:
    context = sentence(1)
    answer = context.split()[1]
    entry = {"id": "q", "question": "Who?", "answers": [{"text": answer, "answer_start": context.index(answer)}]}
    document = {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": [entry]}]}]}
    folder = pretrained / "squad"
    folder.mkdir()
    for split in ("train", "dev"):
        (folder / f"{split}-v1.1.json").write_text(json.dumps(document), encoding="utf-8")
    fine_tuned = train(
        pretrained, "run_squad.py", "questions", "--dataset-dir", folder,
        "--pretrained-ckpt-path", pretrained / "runs" / "pretraining", num_epochs=4,
        squad={"max_query_length": 8},
    )  # fmt: skip
    assert set(json.loads((fine_tuned / "predictions.json").read_text(encoding="utf-8"))) == {"q"}


def test_token_classification(pretrained: Path) -> None:
    folder = pretrained / "entities"
    folder.mkdir()
    words = [word.strip(".") for word in sentence(2).split()]
    lines = "".join(f"{word} {'B-THING' if word in NOUNS else 'O'}\n" for word in words)
    for split in ("train", "dev"):
        (folder / f"{split}.txt").write_text(f"{lines}\n" * 8, encoding="utf-8")
    fine_tuned = train(
        pretrained, "run_token_classification.py", "entities", "--dataset-dir", folder,
        "--pretrained-ckpt-path", pretrained / "runs" / "pretraining", num_epochs=1,
    )  # fmt: skip
    assert run("-m", "tasks.classify", "--checkpoint", fine_tuned, sentence(2))
