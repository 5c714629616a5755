"""Small Hugging Face models with every head, and this project's models with the same weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from transformers import BertConfig

from checkpoints.pretrained.opening import open_pretrained
from keras_extensions.backend import keras
from model import huggingface
from model.architecture import Architecture
from model.blocks import Block
from model.tasks import CLASSIFICATION, PRETRAINING, SQUAD
from tests.support import bert_pairs
from tests.support.bert_pairs import OUTPUTS, architecture, assert_same_logits, on_cpu, pair_of

TASKS = (PRETRAINING, SQUAD, CLASSIFICATION)
CLASSES = 3
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def labels_of(task: str, classes: int = CLASSES) -> int:
    return classes if task == CLASSIFICATION else 2


def build_hf_model(task: str, a: Architecture, seed: int = 3, classes: int = CLASSES) -> Any:
    return huggingface.build_hf_model(task, a, seed, labels_of(task, classes))


def hugging_face(task: str, **changes: Any) -> Any:
    return bert_pairs.source_with_random_weights(architecture(**changes), task, labels_of(task))


def built(task: str, source: Any, a: Architecture, replace: bool = True) -> tuple[keras.Model, list[Block]]:
    pair = pair_of(source, a, on_cpu(), task, replace=replace)
    return pair.model, pair.blocks


def loaded(task: str, start: Any, replace: bool = True, classes: int = CLASSES, **changes: Any) -> keras.Model:
    """Return this project's model with the weights of ``start`` and the given changes of the architecture."""
    a = dataclasses.replace(Architecture(**start.architecture), **changes)
    source = build_hf_model(task, a, seed=99, classes=classes)
    start.set_initial_weights(source)
    return built(task, source, a, replace)[0]


def outputs_of(model: keras.Model, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in model({n: data[n] for n in model.input_names}).items()}


def tensorflow_model(folder: Path) -> Any:
    """Return Transformers' TensorFlow model of an exported folder, whose file its own loader cannot read."""
    config = BertConfig.from_pretrained(str(folder))
    model = getattr(transformers, f"TF{config.architectures[0]}")(config)
    model(model.dummy_inputs)
    written = open_pretrained(str(folder), "folder")
    written.set_initial_weights(model)
    assert not written.report.missing
    return model


def source_outputs(task: str, source: Any, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return Hugging Face's logits by this project's names, with those of words at the masked positions only."""
    theirs = bert_pairs.hugging_face if task != PRETRAINING else bert_pairs.source_outputs
    result = theirs(source, data)
    return {name: np.asarray(result[name]) for name in OUTPUTS[task]}


def assert_close(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    assert ours.keys() == theirs.keys()
    assert_same_logits(ours, theirs)


def write_vocabulary(folder: Path, pieces: int) -> Path:
    words = [*SPECIAL, *(f"w{number}" for number in range(pieces - len(SPECIAL)))]
    path = folder / "vocab.txt"
    path.write_text("\n".join(words) + "\n", encoding="utf-8")
    return path
