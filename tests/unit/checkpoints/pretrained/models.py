"""Small Hugging Face models with every head, and this project's models with the same weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from execution.software.platform import SoftwarePlatform
from keras_extensions.backend import keras
from model import huggingface
from model.architecture import CLASSIFICATION, PRETRAINING, SQUAD, Architecture
from model.blocks import Block, assemble
from model.conversion import convert
from tests.equivalence.bert_pairs import architecture, pretraining_shapes, token_shapes

TASKS = (PRETRAINING, SQUAD, CLASSIFICATION)
OUTPUTS = {
    PRETRAINING: ("masked_lm", "next_sentence"),
    SQUAD: ("start_logits", "end_logits"),
    CLASSIFICATION: ("logits",),
}
S, P, CLASSES = 24, 6, 3
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def untrained(task: str, a: Architecture, seed: int = 3, classes: int = CLASSES) -> Any:
    return huggingface.untrained(task, a, seed, classes if task == CLASSIFICATION else 2)


def hugging_face(task: str, seed: int = 5, **changes: Any) -> Any:
    """Return a model with random weights, including biases and norms."""
    source = untrained(task, architecture(**changes))
    random = np.random.default_rng(seed)
    for variable in source.weights:
        variable.assign(variable + random.normal(0, 0.05, variable.shape).astype("float32"))
    return source


def built(task: str, source: Any, a: Architecture, replace: bool = True) -> tuple[keras.Model, list[Block]]:
    """Return this project's model with the weights of ``source``."""
    platform = SoftwarePlatform(seed=1, xla=False, recompute=False)
    blocks, conversion = convert(task, source, a, platform, replace_layers=replace)
    shapes = pretraining_shapes(S, P) if task == PRETRAINING else token_shapes(S)
    model = assemble(blocks, shapes, OUTPUTS[task], [[block.name for block in blocks]], platform)
    if conversion is not None:
        conversion.carry_weights(source)
    return model, blocks


def loaded(task: str, start: Any, replace: bool = True, classes: int = CLASSES, **changes: Any) -> keras.Model:
    """Return this project's model with the weights of ``start`` and the given changes of the architecture."""
    a = dataclasses.replace(Architecture(**start.architecture), **changes)
    source = untrained(task, a, seed=99, classes=classes)
    start.fill_source(source)
    return built(task, source, a, replace)[0]


def outputs_of(model: keras.Model, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in model({n: data[n] for n in model.input_names}).items()}


def source_outputs(task: str, source: Any, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return Hugging Face's logits by this project's names, with those of words at the masked positions only."""
    outputs = source(input_ids=data["input_ids"], attention_mask=data["input_mask"], token_type_ids=data["segment_ids"])
    if task == PRETRAINING:
        words = np.take_along_axis(
            np.asarray(outputs.prediction_logits), data["masked_lm_positions"][..., None], axis=1
        )
        return {"masked_lm": words, "next_sentence": np.asarray(outputs.seq_relationship_logits)}
    return {name: np.asarray(outputs[name]) for name in OUTPUTS[task]}


def assert_close(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    assert ours.keys() == theirs.keys()
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5, rtol=1e-5, err_msg=name)


def write_vocabulary(folder: Path, pieces: int) -> Path:
    words = [*SPECIAL, *(f"w{number}" for number in range(pieces - len(SPECIAL)))]
    path = folder / "vocab.txt"
    path.write_text("\n".join(words) + "\n", encoding="utf-8")
    return path
