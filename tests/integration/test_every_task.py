"""Every task has a script, learns, and refuses a wrong value; a fine-tuning continues after a kill to the same bits."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import ROOT
from tests.support import fine_tuning_runs
from tests.support.fine_tuning_runs import PIECES, TAGGED_PIECES, write_pieces
from tests.support.record_samples import VOCABULARY
from tests.support.runs import (
    SMALLEST,
    assert_same_run,
    events,
    killed_at,
    metrics,
    read_json,
    run_command,
    write_config,
    write_dataset,
)

OFTEN = {"global_batches_per_log": 10, "ckpt_every_n_steps_per_execution": 2, "report": False}
SIZES = {**SMALLEST, "hidden_size": 32, "initializer_range": 0.1}


class Run(NamedTuple):
    """A task, its config, a complete run, and the worst score that shows that the model has learned."""

    task: str
    config: Path
    folder: Path
    score: str
    least: float


def pretraining(root: Path) -> Path:
    """Return the config of a run on 90 random sequences, which the model memorizes."""
    bert = {**SIZES, "vocab_size": VOCABULARY, "max_position_embeddings": 16}
    data = write_dataset(root / "data")
    return write_config(root / "run.json", data, updates=60, bert_config=bert, validation_dir=str(data), **OFTEN)


def fine_tuning(root: Path, pieces: int, length: int, epochs: int, **changes: Any) -> Path:
    bert = {**SIZES, "vocab_size": pieces, "max_position_embeddings": length}
    settings = {"bert_config": bert, "max_seq_length": length, "num_epochs": epochs, **OFTEN}
    return fine_tuning_runs.write_config(root, "run", **settings, **changes)


def classification(root: Path) -> Path:
    fine_tuning_runs.write_sst2(root)
    write_pieces(root / "vocab.txt", PIECES)
    return fine_tuning(root, 40, 16, 5, glue_task="sst2")


def token_classification(root: Path) -> Path:
    fine_tuning_runs.write_tagged(root)
    write_pieces(root / "vocab.txt", TAGGED_PIECES)
    return fine_tuning(root, 40, 16, 6)


def squad(root: Path) -> Path:
    fine_tuning_runs.write_squad_with_names(root)
    section = {"doc_stride": 24, "max_query_length": 12, "max_answer_length": 4}
    optimizer = {"name": "AdamW", "learning_rate": {"max_learning_rate": 0.005, "warmup_frac": 0.1}}
    return fine_tuning(root, 200, 80, 5, squad=section, optimizer_opts=optimizer)


def sentence_embedding(root: Path) -> Path:
    fine_tuning_runs.write_texts_to_embed(root)
    write_pieces(root / "vocab.txt", PIECES)
    section = {"train_file": "texts.csv", "text": ["film", "right"]}
    return fine_tuning(root, 40, 32, 5, embedding=section)


# Those that further tests take are first, because pytest keeps a fixture as long as the place of its parameter is one.
TASKS: dict[str, tuple[Callable[[Path], Path], str, float]] = {
    "squad": (squad, "exact_match", 50),  # one of about 55 words is right by chance
    "pretraining": (pretraining, "mlm_accuracy", 0.1),  # one of 50 words is right by chance
    "classification": (classification, "accuracy", 0.9),  # the more frequent class has about 0.5
    "token_classification": (token_classification, "f1", 0.9),
    "sentence_embedding": (sentence_embedding, "recall_at_10", 0.9),  # 10 of 24 answers have 0.42 by chance
}


@pytest.fixture(scope="module", params=TASKS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    write, score, least = TASKS[request.param]
    config = write(tmp_path_factory.mktemp(request.param))
    run_command(request.param, config, "--output-dir", str(config.parent / "runs"), status=0)
    return Run(request.param, config, config.parent / "runs" / "run", score, least)


def test_the_model_learns(run: Run) -> None:
    losses = [sum(value for name, value in line["metrics"].items() if "loss" in name) for line in metrics(run.folder)]
    assert losses[-1] < losses[0]
    assert read_json(run.folder / "scores.json")[run.score] > run.least
    assert events(run.folder) == ["begin", "end"]


@pytest.mark.parametrize("run", ["squad"], indirect=True)
def test_a_fine_tuning_continues_after_a_kill_with_the_same_bits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = run.folder.with_name("killed")
    killed_at(monkeypatch, 50, run.config, killed.parent, "--name", killed.name, task=run.task)
    flags = ("--output-dir", str(killed.parent), "--name", killed.name)
    assert "resuming from step 40" in run_command(run.task, run.config, *flags, status=0).errors
    assert_same_run(killed, run.folder)
    assert read_json(killed / "scores.json") == read_json(run.folder / "scores.json")
    assert events(killed) == ["begin", "resume", "end"]


@pytest.mark.parametrize("run", ["squad", "pretraining"], indirect=True)
def test_a_vocabulary_larger_than_the_model_s_is_refused_in_one_line(run: Run) -> None:
    flags = ("--output-dir", str(run.folder.parent), "--name", "wrong", "--bert-config.vocab-size", "8")
    assert "vocab" in run_command(run.task, run.config, *flags, status=2).error
    assert not (run.folder.parent / "wrong").exists()


OTHER_COMMANDS = sorted(
    path
    for folder in ("checkpoints", "data_utils", "execution", "reports", "tasks")
    for path in (ROOT / folder).rglob("*.py")
    if {"= make_parser(", "__main__"} <= set(re.findall(r"= make_parser\(|__main__", path.read_text(encoding="utf-8")))
)


@pytest.mark.parametrize("script", sorted(ROOT.glob("run_*.py")), ids=lambda path: path.stem)
def test_a_script_is_a_command_in_any_folder(script: Path, tmp_path: Path) -> None:
    helped = subprocess.run([sys.executable, script, "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert helped.returncode == 0 and script.name in helped.stdout and not helped.stderr
    options = {
        "run_from_text": ["--hours", "1", "--text"],  # room: from_text
    }
    missing = [*options.get(script.stem, ["--config"]), "missing.json"]
    refused = subprocess.run([sys.executable, script, *missing], cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 2 and refused.stderr.startswith("error: ") and "missing.json" in refused.stderr


@pytest.mark.parametrize("module", OTHER_COMMANDS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_other_command_starts_in_any_folder(module: Path, tmp_path: Path) -> None:
    path = (module.parent if module.name == "__main__.py" else module.with_suffix("")).relative_to(ROOT)
    command = [sys.executable, ROOT / "start.py", ".".join(path.parts), "--help"]
    helped = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert helped.returncode == 0 and not helped.stderr
    assert f"usage: python {ROOT / 'start.py'} {'.'.join(path.parts)} " in " ".join(helped.stdout.split())
