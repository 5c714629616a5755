"""``run_squad.py`` from files to scores: trained, evaluated alone, from the cache, and refused."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import run_squad
from data_utils.squad.__main__ import main as score_command
from tests import ROOT
from tests.unit.data_utils.squad.data import WORDS, write_vocabulary
from utilities.cli import main

NAMES = ["anna", "boris", "clara", "david", "elena", "felix"]  # no other word occurs as an answer
PLAIN = [word for word in WORDS if word.isalpha()]
OUTPUTS = {"predictions.json", "nbest_predictions.json", "predictions.html", "scores.json", "report.html"}


def article(chance: random.Random, title: str) -> dict[str, Any]:
    """Two contexts of 20 to 90 words, each with one name, and two questions about it."""
    paragraphs = []
    for number in range(2):
        words = chance.choices(PLAIN, k=chance.randint(20, 90))
        name = chance.choice(NAMES)
        words[chance.randrange(len(words))] = name.capitalize()
        context = " ".join(words)
        answer = {"text": name.capitalize(), "answer_start": context.index(name.capitalize())}
        questions = [
            {"id": f"{title}-{number}-{asked}", "question": f"Who {asked} it?", "answers": [answer]}
            for asked in ("built", "was")
        ]
        paragraphs.append({"context": context, "qas": questions})
    return {"title": title, "paragraphs": paragraphs}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of SQuAD's form, and a vocabulary."""
    folder = tmp_path_factory.mktemp("squad")
    chance = random.Random(3)
    for name, count in (("train-v1.1.json", 60), ("dev-v1.1.json", 9)):
        content = {"version": "1.1", "data": [article(chance, f"{name[:5]}_{number}") for number in range(count)]}
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    vocabulary = write_vocabulary(folder).path
    vocabulary.write_text(vocabulary.read_text(encoding="utf-8") + "".join(f"{n}\n" for n in NAMES), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def config(data: Path) -> Path:
    path = data / "squad_tiny.json"
    values = {
        "bert_config": {
            "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 64,
            "vocab_size": 200, "max_position_embeddings": 80, "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0, "initializer_range": 0.1,
        },
        "vocab_file": str(data / "vocab.txt"),
        "dataset_dir": str(data),
        "output_dir": str(data / "runs"),
        "max_seq_length": 80,
        "squad": {"doc_stride": 24, "max_query_length": 12, "n_best_size": 5, "max_answer_length": 4},
        "global_batch": {"micro_batch_size": 16, "grad_acc_steps_per_replica": 1},
        "num_epochs": 8,
        "optimizer_opts": {"name": "AdamW", "learning_rate": {"max_learning_rate": 0.005, "warmup_frac": 0.1}},
        "global_batches_per_log": 50,
        "evaluation_batch_size": 7,
        "embedding_serialization_factor": 1,
        "enable_recomputation": False,
        "execution": {"xla": False, "platform": "software", "precision": "float32"},
    }  # fmt: skip
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(config: Path, data: Path) -> tuple[Path, str]:
    """The run's folder and what it printed, from a process of its own."""
    command = [sys.executable, str(ROOT / "run_squad.py"), "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return data / "runs" / "squad_tiny", done.stdout + done.stderr


def run(config: Path, *flags: str) -> tuple[int, str]:
    """The command in this process: its status and its errors."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        status = main("squad", run_squad.run, ["--config", str(config), *flags])
    return status, errors.getvalue()


def printed(output: str, name: str) -> float:
    """A score as scripts find it in the log."""
    return float(re.findall(rf"{name}: *(\d*\.\d*)", output)[-1])


def test_it_learns_and_answers_every_question(trained: tuple[Path, str], data: Path) -> None:
    folder, output = trained
    assert {path.name for path in folder.iterdir()} >= OUTPUTS
    predictions = json.loads((folder / "predictions.json").read_text(encoding="utf-8"))
    dev = json.loads((data / "dev-v1.1.json").read_text(encoding="utf-8"))
    contexts = {
        entry["id"]: paragraph["context"]
        for item in dev["data"] for paragraph in item["paragraphs"] for entry in paragraph["qas"]
    }  # fmt: skip
    assert predictions.keys() == contexts.keys()
    assert all(text and text in contexts[identity] for identity, text in predictions.items())
    assert printed(output, "exact_match") > 80  # one of about 55 words is right by chance
    assert printed(output, "f1") >= printed(output, "exact_match")


def test_the_scores_are_those_of_the_predictions(
    trained: tuple[Path, str], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, output = trained
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    assert score_command([str(data / "dev-v1.1.json"), str(folder / "predictions.json")]) == 0
    assert json.loads(capsys.readouterr().out) == scores
    for name, value in scores.items():
        assert printed(output, name) == pytest.approx(value, abs=1e-4)


def test_the_candidates_are_ordered_and_their_probabilities_sum_to_one(trained: tuple[Path, str]) -> None:
    folder, _ = trained
    predictions = json.loads((folder / "predictions.json").read_text(encoding="utf-8"))
    candidates = json.loads((folder / "nbest_predictions.json").read_text(encoding="utf-8"))
    assert candidates.keys() == predictions.keys()
    for identity, found in candidates.items():
        assert found[0]["text"] == predictions[identity]
        assert 1 <= len(found) <= 5
        scores = [each["start_logit"] + each["end_logit"] for each in found]
        assert scores == sorted(scores, reverse=True)
        assert sum(each["probability"] for each in found) == pytest.approx(1)


def test_the_report_knows_the_data(trained: tuple[Path, str], data: Path) -> None:
    folder, output = trained
    facts = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    assert facts["questions"] == 240
    assert facts["contexts"] == 120
    assert facts["questions_left_out"] == 0
    assert facts["records"] > 240  # long contexts have several windows
    assert facts["lower_case"] is True
    assert "knowing nothing, ln(80 places)" in output
    assert len(list((data / "runs" / "cache").iterdir())) >= 2


@pytest.mark.parametrize("batch", ["5", "64"])
def test_evaluation_alone_from_the_cache_gives_the_same_whatever_the_batch(
    trained: tuple[Path, str], config: Path, data: Path, batch: str
) -> None:
    folder, _ = trained
    name = f"again-{batch}"
    flags = ["--do-training", "false", "--pretrained-ckpt-path", str(folder), "--evaluation-batch-size", batch]
    flags += ["--vocab-file", "none"]  # it lies beside the weights
    status, errors = run(config, *flags, "--name", name)
    assert status == 0, errors
    again = data / "runs" / name
    assert "from the cache" in (again / "train.log").read_text(encoding="utf-8")
    for output in ("predictions.json", "scores.json"):
        assert (again / output).read_text(encoding="utf-8") == (folder / output).read_text(encoding="utf-8")
    assert not (again / "checkpoints").exists()


PACKED = ["--packing.max-sequences-per-pack", "4"]


def test_packed_windows_get_the_same_answers(trained: tuple[Path, str], config: Path, data: Path) -> None:
    folder, _ = trained
    flags = ["--do-training", "false", "--pretrained-ckpt-path", str(folder), "--name", "packed-answers"]
    status, errors = run(config, *flags, *PACKED)
    assert status == 0, errors
    again = data / "runs" / "packed-answers" / "predictions.json"
    assert again.read_text(encoding="utf-8") == (folder / "predictions.json").read_text(encoding="utf-8")


def test_training_on_packed_windows_learns_too(config: Path, data: Path) -> None:
    status, errors = run(config, *PACKED, "--name", "packed", "--global-batch.micro-batch-size", "8")
    assert status == 0, errors
    folder = data / "runs" / "packed"
    assert json.loads((folder / "scores.json").read_text(encoding="utf-8"))["exact_match"] > 80
    facts = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    assert facts["records"] < facts["windows"] / 1.1  # packs


def test_a_malformed_file_is_refused_before_training(config: Path, data: Path, tmp_path: Path) -> None:
    document = json.loads((data / "dev-v1.1.json").read_text(encoding="utf-8"))
    del document["data"][4]["paragraphs"][1]["qas"][0]["answers"][0]["answer_start"]
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(document), encoding="utf-8")
    status, errors = run(config, "--squad.dev-file", str(broken), "--name", "broken")
    assert status == 2
    assert "broken.json: article 5 ('dev-v_4'), paragraph 2, question 1 ('dev-v_4-1-built'), answer 1" in errors
    assert "answer_start is missing" in errors
    assert not (data / "runs" / "broken").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--vocab-file", "none"], "vocab_file is not set"),
        (["--bert-config.vocab-size", "90"], "set vocab_file to the vocabulary that the model was trained with"),
        (["--squad.max-query-length", "77"], "squad.max_query_length = 77"),
        (["--squad.train-file", "absent.json"], "absent.json: cannot be read"),
    ],
)
def test_what_does_not_fit_is_one_line(config: Path, flags: list[str], said: str) -> None:
    status, errors = run(config, *flags)
    assert status == 2
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert said in lines[0]


@pytest.mark.parametrize("packing", [[], PACKED], ids=["windows", "packs"])
def test_generated_data_needs_neither_files_nor_vocabulary(
    config: Path, data: Path, tmp_path: Path, packing: list[str]
) -> None:
    flags = ["--generated-dataset", "true", "--dataset-dir", str(tmp_path / "absent"), "--vocab-file", "none"]
    length = ["--num-epochs", "none", "--total-num-train-samples", "128"]
    status, errors = run(config, *flags, *length, *packing, "--name", "generated")
    assert status == 0, errors
    assert not (data / "runs" / "generated" / "predictions.json").exists()
