"""Writes checkpoints of this project like training."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from checkpoints.pretrained.opening import open_pretrained
from checkpoints.state import TrainingState
from checkpoints.writer import write_checkpoint
from keras_extensions.backend import keras
from model.tasks import CLASSIFICATION
from tests.support.bert_pairs import architecture, batch, source_with_random_weights
from tests.support.hf_models import built, labels_of, write_vocabulary

OPTIONS = {
    "everything": {},
    "as published": {
        "use_qkv_bias": False, "use_qkv_split": False, "use_projection_bias": False, "use_cls_layer": False,
    },
    "split, no prediction bias": {"use_qkv_bias": False, "use_prediction_bias": False},
    "ReLU": {"hidden_act": "relu"},
    "SiLU": {"hidden_act": "silu"},
    "tanh GeLU, no transform": {"hidden_act": "gelu_new", "use_cls_layer": False},
}  # fmt: skip
STEP = 3
PIECES = 118  # in vocab.txt; the tables have two rows more


def samples() -> dict[str, np.ndarray]:
    """Return a batch whose tokens are in a vocabulary of ``PIECES``."""
    data = batch(architecture())
    return {**data, "input_ids": data["input_ids"] % PIECES}


class Saved(NamedTuple):
    """A Hugging Face model, and this project's model of it that was saved."""

    source: Any
    model: keras.Model


def save(
    task: str, options: dict, folder: Path, replace: bool = True, pieces: int | None = None, classes: int | None = None,
    **config: Any,
) -> Saved:  # fmt: skip
    """Write a checkpoint with ``options`` of the architecture, and with a ``vocab.txt`` of so many pieces.

    A classifier has ``classes`` and ``config``, or those of MNLI.
    """
    a = architecture(**options)
    source = source_with_random_weights(a, task, labels_of(task) if classes is None else classes)
    model, blocks = built(task, source, a, replace)
    description = {"task": task, "architecture": dataclasses.asdict(a), "lower_case": True}
    if task == CLASSIFICATION or config:
        description["config"] = config or {"glue_task": "mnli"}
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = None if pieces is None else write_vocabulary(folder, pieces)
    state = TrainingState(blocks, keras.optimizers.SGD(0.1))
    write_checkpoint(
        state.copy(),
        folder,
        STEP,
        description,
        {} if vocabulary is None else {vocabulary.name: vocabulary.read_bytes()},
    )
    return Saved(source, model)


def weights_of(path: Path) -> dict[str, np.ndarray]:
    """Return the weights of a run or an export by their names in PyTorch."""
    return {name: weight.value() for name, weight in open_pretrained(str(path), "pretrained_ckpt_path").weights.items()}
