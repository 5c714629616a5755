"""A trained head is continued by the names of its classes: a training that learns nothing changes no probability."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from keras_extensions.backend import tf
from tasks import load
from tests.support.checkpoint_writers import safetensors
from tests.support.fine_tuning_runs import BAD, GOOD, PIECES, sentence, write_config, write_pieces
from tests.support.hf_models import hugging_face
from tests.support.runs import run_command, write_json

THEIRS = ["neutral", "positive", "negative"]
OWN = ["negative", "neutral", "positive"]  # sorted, as the classes of a file are
STILL: dict[str, Any] = {
    "optimizer_opts": {"name": "AdamW", "learning_rate": {"max_learning_rate": 1e-12}},
    "num_epochs": 1,
    "vocab_file": None,
    "bert_config": None,
}


def released(folder: Path) -> Any:
    """Write the folder of a classifier of texts with three named classes, and return Hugging Face's model."""
    model = hugging_face("classification", vocab_size=len(PIECES))
    for variable in model.classifier.weights:  # probabilities that differ from class to class
        variable.assign(3 * np.random.default_rng(0).normal(size=variable.shape))
    model.config.id2label = dict(enumerate(THEIRS))
    model.config.label2id = {name: number for number, name in enumerate(THEIRS)}
    safetensors(model, folder)
    write_pieces(folder / "vocab.txt", PIECES)
    write_json(folder / "tokenizer_config.json", {"do_lower_case": True})
    return model


def probabilities(model: Any, texts: list[str]) -> list[dict[str, float]]:
    result = []
    for text in texts:
        tokens = ["[CLS]", *text.split(), "[SEP]"]
        logits = model(tf.constant([[PIECES.index(token) for token in tokens]])).logits.numpy()[0]
        result.append(dict(zip(THEIRS, softmax(logits).tolist())))
    return result


def test_classes_of_a_released_classifier_and_of_an_own_run(tmp_path: Path) -> None:
    model, chance = released(tmp_path / "released"), random.Random(0)
    texts = [sentence(chance, word) for word in (*GOOD, *BAD)]
    rows = [f"{text},{name}" for text, name in zip(texts * 6, itertools.cycle(OWN))]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    data = {"train_file": "rows.csv", "validation_file": "rows.csv"}
    first = write_config(
        tmp_path, "first", **STILL, classification_data=data, pretrained_ckpt_path=str(tmp_path / "released")
    )
    reordered = {**data, "classes": ["positive", "negative", "neutral"]}
    own = str(tmp_path / "runs" / "first")
    second = write_config(tmp_path, "second", **STILL, classification_data=reordered, pretrained_ckpt_path=own)
    wanted = probabilities(model, texts)
    for config in (first, second):
        run_command("classification", config, status=0)
        answers = load(str(tmp_path / "runs" / config.stem))(texts)
        for answer, expected in zip(answers, wanted):
            assert dict(answer) == pytest.approx(expected, abs=1e-5)
