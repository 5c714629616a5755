"""A small data set of text, a config for it, and runs through the real command line, in this process."""

from __future__ import annotations

import contextlib
import io
import json
import random
from pathlib import Path
from typing import Any, Dict, NamedTuple, Tuple

import run_pretraining
from data_utils.text.__main__ import main as prepare
from utilities.cli import main

SEQUENCE, PREDICTIONS, VOCABULARY = 32, 5, 200
NOUNS = [
    *("river", "mountain", "engine", "teacher", "planet", "garden"),
    *("bridge", "letter", "winter", "captain", "library", "signal"),
]
VERBS = ["crosses", "carries", "follows", "watches", "builds", "paints", "remembers", "repairs", "measures", "visits"]


class Outcome(NamedTuple):
    """How a command ended."""

    status: int
    errors: str


def sentence(number: int) -> str:
    """One of twelve sentences; any two words of it tell the others."""
    noun, other, place = (NOUNS[(number * step + 1) % len(NOUNS)] for step in (1, 5, 7))
    return f"The {noun} {VERBS[number % len(VERBS)]} the {other} near the {place}."


def write_text(path: Path, documents: int = 60) -> Path:
    """Documents of sentences that a model learns by heart within some hundred updates."""
    chance = random.Random(4)
    pages = [" ".join(sentence(chance.randrange(12)) for _ in range(12)) for _ in range(documents)]
    path.write_text("\n\n".join(pages), encoding="utf-8")
    return path


def prepare_dataset(folder: Path, text: Path, sequence: int = SEQUENCE, predictions: int = PREDICTIONS) -> Path:
    """TFRecords of the text by the product's own command."""
    arguments = [
        "--text", str(text), "--output", str(folder), "--vocab-size", str(VOCABULARY), "--workers", "1",
        "--max-seq-length", str(sequence), "--max-predictions", str(predictions), "--duplicate-factor", "2",
    ]  # fmt: skip
    assert prepare(arguments) in (0, None)
    return folder


def write_config(path: Path, **changes: Any) -> Path:
    """A config of a very small BERT; ``changes`` replace top-level values."""
    config: Dict[str, Any] = {
        "bert_config": {
            "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 64,
            "vocab_size": VOCABULARY, "max_position_embeddings": 64,
        },
        "max_seq_length": SEQUENCE,
        "max_predictions_per_seq": PREDICTIONS,
        "global_batch": {"micro_batch_size": 8, "grad_acc_steps_per_replica": 2},
        "total_num_train_samples": 16 * 12,
        "optimizer_opts": {"name": "AdamW", "learning_rate": {"max_learning_rate": 0.01}},
        "global_batches_per_log": 4,
        "enable_recomputation": False,
        "execution": {"xla": False, "platform": "software", "precision": "float32"},
        "embedding_serialization_factor": 1,
        **changes,
    }  # fmt: skip
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def pretrain(config: Path, output: Path, *arguments: str) -> Outcome:
    """``run_pretraining.py`` with its errors."""
    errors = io.StringIO()
    command = ["--config", str(config), "--output-dir", str(output), *arguments]
    with contextlib.redirect_stderr(errors):
        status = main("pretraining", run_pretraining.run, command)
    return Outcome(status, errors.getvalue())


def metrics(run: Path) -> Tuple[Dict[str, Any], ...]:
    """The logging periods of a run."""
    return tuple(json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
