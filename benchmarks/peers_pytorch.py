"""Hugging Face's PyTorch BERT, trained as its users do it: pre-training, SQuAD, learning curves and fine-tuning.

B micro batch · S sequence · P masked positions · H hidden · V vocabulary · N samples · K classes
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForPreTraining,
    BertForQuestionAnswering,
    get_linear_schedule_with_warmup,
)

from benchmarks.measuring import cores
from benchmarks.samples import Arrays, hugging_face_samples, hugging_face_windows
from benchmarks.settings import LEARNING_RATE, MICRO_BATCH, SEED, WEIGHT_DECAY, Trainer
from model.architecture import Architecture

Batch = dict[str, torch.Tensor]
INPUTS = {"input_ids": "input_ids", "input_mask": "attention_mask", "segment_ids": "token_type_ids"}
LABELS = {"labels": "labels", "start_positions": "start_positions", "end_positions": "end_positions"}
EVALUATION_BATCH = 64


# --- Speed ---


def pretraining(architecture: Architecture, data: Arrays, tuned: bool = False) -> Trainer:
    """Pre-train.

    Args:
        data: full sequences, every masked position real.
        tuned: the masked-LM head on the masked positions only, and fused AdamW; else the model's own loss, as shipped.
    """
    model = _prepared(BertForPreTraining, architecture)
    if not tuned:
        batches = _batches(hugging_face_samples(data, "int64"))
        return _loop(model, batches, lambda batch: model(**batch).loss)
    integers = {name: values.astype("int64") for name, values in data.items() if name != "masked_lm_weights"}
    return _loop(model, _batches(integers), lambda batch: _masked_positions_loss(model, batch), fused=True)


def span(architecture: Architecture, windows: Arrays, **adamw: bool) -> Trainer:
    """Fine-tune on SQuAD's windows with the model's own loss."""
    model = _prepared(BertForQuestionAnswering, architecture)
    batches = _batches(hugging_face_windows(windows, "int64"))
    return _loop(model, batches, lambda batch: model(**batch).loss, **adamw)


def _prepared(kind: Any, architecture: Architecture) -> Any:
    """Return a model of random weights in training mode, with attention as shipped (scaled dot-product)."""
    torch.set_num_threads(cores())
    torch.manual_seed(SEED)
    model = kind(config_of(architecture))
    assert model.config._attn_implementation == "sdpa"
    return model.train()


def config_of(a: Architecture) -> BertConfig:
    """Return the config of the same model. As :func:`model.huggingface.hugging_face_config`, without TensorFlow."""
    return BertConfig(
        vocab_size=a.vocab_size,
        hidden_size=a.hidden_size,
        num_hidden_layers=a.num_hidden_layers,
        num_attention_heads=a.num_attention_heads,
        intermediate_size=a.intermediate_size,
        hidden_act=a.hidden_act,
        hidden_dropout_prob=a.hidden_dropout_prob,
        attention_probs_dropout_prob=a.attention_probs_dropout_prob,
    )


def _batches(data: Arrays, size: int = MICRO_BATCH) -> Iterator[Batch]:
    """Yield micro batches without end."""
    count = len(next(iter(data.values()))) // size
    while True:
        for number in range(count):
            rows = slice(number * size, (number + 1) * size)
            yield {name: torch.from_numpy(values[rows]) for name, values in data.items()}


def _loop(
    model: torch.nn.Module, batches: Iterator[Batch], loss_of: Callable[[Batch], torch.Tensor], **adamw: bool
) -> Trainer:
    """Return the usual loop: loss, backward, step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, **adamw)

    def train(steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(steps):
            loss = loss_of(next(batches))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loss.item()
        return time.perf_counter() - begin

    return train


def _masked_positions_loss(model: BertForPreTraining, batch: Batch) -> torch.Tensor:
    """Return masked-LM plus next-sentence loss, every masked position real."""
    output = model.bert(batch["input_ids"], batch["input_mask"], batch["segment_ids"])
    hidden = output.last_hidden_state  # (B, S, H)
    rows = torch.arange(hidden.shape[0])[:, None]
    masked = hidden[rows, batch["masked_lm_positions"]]  # (B, P, H)
    words, next_sentence = model.cls(masked, output.pooler_output)  # (B, P, V), (B, 2)
    words_loss = functional.cross_entropy(words.flatten(0, 1), batch["masked_lm_ids"].flatten())
    return words_loss + functional.cross_entropy(next_sentence, batch["next_sentence_labels"][:, 0])


# --- Learning ---


def pretraining_losses(
    architecture: Architecture, weights: Arrays, data: Arrays, batch: int, steps: int, settings: dict[str, float]
) -> list[float]:
    """Return the loss of each step of a plain loop: the model's own loss, AdamW, linear warm-up and decay.

    Args:
        weights: of the model, by name.
        data: samples by this project's names, used in order.
        batch: B.
        settings: see :func:`_adamw`, and ``warmup``, a share of the steps.
    """
    model = BertForPreTraining(config_of(architecture))
    parameters = dict(model.named_parameters())
    assert parameters.keys() == weights.keys(), parameters.keys() ^ weights.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            assert parameter.shape == weights[name].shape, name
            parameter.copy_(torch.tensor(weights[name]))
    optimizer = _adamw(model, settings)
    warm_up = round(settings["warmup"] * steps)

    def factor(done: int) -> float:
        return (done + 1) / warm_up if done < warm_up else (steps - done) / (steps - warm_up)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    batches = _batches(hugging_face_samples(data, "int64"), batch)
    losses = []
    model.train()
    for _ in range(steps):
        loss = model(**next(batches)).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return losses


def _adamw(model: torch.nn.Module, settings: dict[str, Any]) -> torch.optim.Optimizer:
    """Return AdamW with ``learning_rate``, ``weight_decay`` and ``epsilon``; biases and LayerNorm do not decay."""
    decayed = [weight for weight in model.parameters() if weight.ndim >= 2]
    others = [weight for weight in model.parameters() if weight.ndim < 2]
    groups = [{"params": decayed, "weight_decay": settings["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings["learning_rate"], eps=settings["epsilon"])


# --- Fine-tuning ---


def fine_tune(folder: str) -> None:
    """Fine-tune as Hugging Face's users do it: ``from_pretrained``, AdamW, linear warm-up and decay.

    Args:
        folder: has ``job.json`` and ``samples.npz``; the outputs for the evaluation samples go to ``outputs.npz``.
    """
    place = Path(folder)
    job = json.loads((place / "job.json").read_text(encoding="utf-8"))
    torch.set_num_threads(cores())
    torch.manual_seed(job["seed"])
    with np.load(place / "samples.npz", allow_pickle=False) as arrays:
        parts = {part: {k.split("/")[1]: arrays[k] for k in arrays if k.startswith(part)} for part in ("train", "dev")}
    options = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    if job["classes"] is None:
        model = AutoModelForQuestionAnswering.from_pretrained(job["weights"], **options)
    else:
        options["num_labels"] = job["classes"]
        model = AutoModelForSequenceClassification.from_pretrained(job["weights"], **options)
    _train(model, parts["train"], job)
    np.savez(place / "outputs.npz", **_outputs(model, parts["dev"]))


def _batch_of(samples: Arrays, names: dict[str, str], rows: np.ndarray) -> Batch:
    """Return samples by Hugging Face's names, without the padding that all of them have."""
    length = int(samples["input_mask"][rows].sum(axis=1).max())
    batch = {}
    for name, theirs in names.items():
        if name in samples:
            values = samples[name][rows]
            values = values[:, :length] if name in INPUTS else values.reshape(-1)
            batch[theirs] = torch.from_numpy(values.astype(np.int64))
    return batch


def _train(model: torch.nn.Module, samples: Arrays, job: dict[str, Any]) -> None:
    """Run the usual loop over shuffled epochs."""
    random = np.random.default_rng(job["seed"])
    count, batch = len(samples["input_ids"]), job["batch"]
    steps = count * job["epochs"] // batch
    optimizer = _adamw(model, job)
    schedule = get_linear_schedule_with_warmup(optimizer, int(steps * job["warmup"]), steps)
    order = np.concatenate([random.permutation(count) for _ in range(job["epochs"])])
    model.train()
    for step in range(steps):
        rows = order[step * batch : (step + 1) * batch]
        model(**_batch_of(samples, {**INPUTS, **LABELS}, rows)).loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)


def _outputs(model: torch.nn.Module, samples: Arrays) -> Arrays:
    """Return ``logits`` (N, K), or ``start_logits`` and ``end_logits`` (N, S), very small beyond a sample's end."""
    count, length = samples["input_ids"].shape
    found: dict[str, list[np.ndarray]] = {}
    model.eval()
    with torch.no_grad():
        for begin in range(0, count, EVALUATION_BATCH):
            rows = np.arange(begin, min(begin + EVALUATION_BATCH, count))
            for name, values in model(**_batch_of(samples, INPUTS, rows)).items():
                array = values.numpy()
                if name != "logits":
                    array = np.pad(array, ((0, 0), (0, length - array.shape[1])), constant_values=-1e4)
                found.setdefault(name, []).append(array)
    return {name: np.concatenate(parts) for name, parts in found.items()}
