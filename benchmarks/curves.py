"""Losses of this project and of a plain PyTorch loop, step by step, from the same weights and data.

Total loss: masked-LM loss averaged over the real masked tokens, plus next-sentence loss.

G steps × micro batch · B micro batch · S sequence
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import BertForPreTraining

from benchmarks.competitors.hugging_face import bert_config
from benchmarks.competitors.pytorch import tensors
from benchmarks.curve_data import Samples
from benchmarks.hugging_face_weights import pytorch_weights
from benchmarks.samples import hugging_face_samples
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import pretraining_features
from data_utils.records.pipeline import training_dataset
from execution.interface import Update
from execution.software.platform import SoftwarePlatform
from keras_extensions.backend import keras
from keras_extensions.callbacks.reporting import PerExecutionMetrics
from keras_extensions.schedules import UpDown
from model.architecture import PRETRAINING, Architecture, expected_blocks
from model.blocks import assemble
from model.conversion import convert
from model.huggingface import untrained
from model.losses import PretrainingObjective
from optimization.optimizers import AdamW


@dataclass(frozen=True)
class Recipe:
    """What both sides do.

    Args:
        architecture: without dropout, with all biases.
        steps: weight updates, each on the next ``micro_batch`` samples.
        learning_rate: at the end of the warm-up; linear to 0 after it.
    """

    architecture: Architecture
    steps: int = 100
    micro_batch: int = 8
    learning_rate: float = 1e-3
    warm_up: float = 0.1
    weight_decay: float = 0.01
    epsilon: float = 1e-6
    seed: int = 1984


@dataclass(frozen=True)
class Curves:
    """Total loss of each step."""

    ours: list[float]
    pytorch: list[float]

    @property
    def deviations(self) -> list[float]:
        """Difference of each step, as a share of PyTorch's loss."""
        return [abs(a - b) / b for a, b in zip(self.ours, self.pytorch, strict=True)]


def learning_curves(recipe: Recipe, data: Samples) -> Curves:
    """Train on both sides.

    Args:
        data: at least ``steps × micro_batch`` samples, used once, in order: name → (G, …).
    """
    source = untrained(PRETRAINING, recipe.architecture, recipe.seed)
    theirs = BertForPreTraining(bert_config(recipe.architecture))
    load_weights(theirs, pytorch_weights(source))
    return Curves(ours=our_losses(recipe, data, source), pytorch=pytorch_losses(recipe, data, theirs))


def load_weights(model: BertForPreTraining, weights: dict[str, np.ndarray]) -> None:
    """Assign every parameter by name."""
    parameters = dict(model.named_parameters())
    assert parameters.keys() == weights.keys(), parameters.keys() ^ weights.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            assert parameter.shape == weights[name].shape, name
            parameter.copy_(torch.tensor(weights[name]))


def our_losses(recipe: Recipe, data: Samples, source: Any) -> list[float]:
    """Through conversion, ``compile`` and ``fit``, as the trainer does it."""
    architecture = recipe.architecture
    platform = SoftwarePlatform(seed=recipe.seed, xla=True, recompute=False)
    blocks, conversion = convert(PRETRAINING, source, architecture, platform)
    stages = [expected_blocks(PRETRAINING, architecture.num_hidden_layers)]
    length, predictions = data["input_ids"].shape[1], data["masked_lm_ids"].shape[1]
    shapes = pretraining_features(length, predictions, architecture.vocab_size).shapes
    model = assemble(blocks, shapes, ("masked_lm", "next_sentence"), stages, platform)
    conversion.carry_weights(source)
    optimizer = AdamW(
        UpDown(recipe.learning_rate, recipe.steps, recipe.warm_up),
        weight_decay_rate=recipe.weight_decay,
        epsilon=recipe.epsilon,
    )
    platform.compile(model, optimizer, PretrainingObjective(), Update(micro_batches=1), updates_per_execution=1)
    dataset = training_dataset(
        ArrayReader(pretraining_features(length, predictions, architecture.vocab_size), data),
        micro_batch_size=recipe.micro_batch,
        micro_batches_per_update=1,
        seed=recipe.seed,
        num_updates=recipe.steps,
        shuffle=False,
    )
    losses: list[float] = []
    collect = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda _, logs: losses.append(float(logs["mlm_loss"] + logs["nsp_loss"]))
    )
    model.fit(dataset, steps_per_epoch=recipe.steps, verbose=0, callbacks=[PerExecutionMetrics(), collect])
    return losses


def pytorch_losses(recipe: Recipe, data: Samples, model: BertForPreTraining) -> list[float]:
    """A plain loop: the model's own loss, ``torch.optim.AdamW``, no decay of biases and norms."""
    named = list(model.named_parameters())
    unchanged = [p for name, p in named if name.endswith("bias") or "LayerNorm" in name]
    decayed = [p for name, p in named if not (name.endswith("bias") or "LayerNorm" in name)]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": recipe.weight_decay},
            {"params": unchanged, "weight_decay": 0.0},
        ],
        lr=recipe.learning_rate,
        eps=recipe.epsilon,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_factor(recipe))
    batches = tensors(hugging_face_samples(data, "int64"), recipe.micro_batch)
    losses = []
    model.train()
    for _ in range(recipe.steps):
        loss = model(**next(batches)).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return losses


def rate_factor(recipe: Recipe) -> Callable[[int], float]:
    """Linear warm-up, then linear decay: share of the maximum after a number of steps."""
    warm_up = round(recipe.warm_up * recipe.steps)

    def factor(done: int) -> float:
        return (done + 1) / warm_up if done < warm_up else (recipe.steps - done) / (recipe.steps - warm_up)

    return factor
