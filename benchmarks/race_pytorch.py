"""The learning race's training in PyTorch: Hugging Face's BERT, masked-LM head at the masked positions only.

It computes in bfloat16 (autocast) where the processor multiplies it faster than float32, as this project does. AdamW is
fused, attention is scaled dot-product attention.

B batch · M masked positions of a batch · S sequence · H hidden · V vocabulary
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM, BertPreTrainedModel

from benchmarks.samples import Arrays, select_rows
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import pretraining_features
from utilities.environment import fast_bfloat16, keep_freed_memory, usable_cores

SCORED_AT_ONCE = 256
MATRICES = ("encoder", "transform")  # parts of the model whose matrices Muon updates

Result = dict[str, Any]  # minutes and folders of the snapshots, and what else was measured
Part = dict[str, Any]  # what PyTorch needs to know of one part of a recipe


def read_rows(folder: str) -> Arrays:
    """Return the arrays of a folder, which stay on disk until they are used."""
    return {file.stem: np.load(file, mmap_mode="r") for file in Path(folder).glob("*.npy")}


def batches(rows: Arrays, size: int, seed: int) -> Iterator[Arrays]:
    """Yield batches in random order without end; each pass over the rows has its own order."""
    rng, count = np.random.default_rng(seed), len(rows["input_ids"])
    size = min(size, count)
    while True:
        order = rng.permutation(count)
        for begin in range(0, count - size + 1, size):
            yield select_rows(rows, np.sort(order[begin : begin + size]))


def masked_lm_loss(model: BertForMaskedLM, batch: Arrays) -> torch.Tensor:
    """Return the mean loss over the real masked positions of a batch."""
    ids, mask, segments = (
        torch.from_numpy(batch[name].astype(np.int64)) for name in ("input_ids", "input_mask", "segment_ids")
    )  # (B, S)
    row, column = np.nonzero(batch["masked_lm_weights"])
    positions, words = (batch[name][row, column].astype(np.int64) for name in ("masked_lm_positions", "masked_lm_ids"))
    hidden = model.bert(ids, mask, segments).last_hidden_state  # (B, S, H)
    scores = model.cls(hidden[torch.from_numpy(row), torch.from_numpy(positions)])  # (M, V)
    return torch.nn.functional.cross_entropy(scores, torch.from_numpy(words))


def make_optimizers(model: BertPreTrainedModel, part: Part) -> list[torch.optim.Optimizer]:
    """Return fused AdamW and, if the part has a ``muon_scale``, Muon for the matrices.

    Biases and LayerNorm do not decay.
    """
    scale = part["muon_scale"]
    matrices: list[torch.nn.Parameter] = []
    decayed: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, weight in model.named_parameters():
        is_matrix = scale is not None and weight.ndim == 2 and any(word in name.split(".") for word in MATRICES)
        (matrices if is_matrix else decayed if weight.ndim >= 2 else others).append(weight)
    rate, decay = part["learning_rate"], part["weight_decay"]
    groups = [{"params": decayed, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=rate, betas=tuple(part["betas"]), eps=part["epsilon"], fused=True)
    if not matrices:
        return [adamw]
    # Momentum 0.95, Nesterov and the five products of Newton–Schulz are its defaults.
    # "original" multiplies the rate, and not the decay, by √max(1, rows / columns), which is divided out here.
    ratios = [scale / max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5 for matrix in matrices]
    groups = [
        {"params": [matrix], "lr": rate * ratio, "weight_decay": decay / ratio}
        for matrix, ratio in zip(matrices, ratios, strict=True)
    ]
    return [adamw, torch.optim.Muon(groups, adjust_lr_fn="original")]


def rate_factor(done: float, part: Part) -> float:
    """Return the share of the peak rate after ``done`` of the part's ``total``, in updates or in seconds."""
    total = part["total"]
    warm_up = round(part["warm_up"] * total)
    if done < warm_up:
        return min((done + 1) / warm_up, 1.0)
    return max((total - done) / max(total - warm_up, 1), 0.0) if part["decays"] else 1.0


class Snapshots:
    """Hugging Face folders of a model along its way, at equal times from a start."""

    def __init__(self, folder: Path, start: float, minutes: float):
        self._folder, self._start, self._every, self._next = folder, start, 60 * minutes, 60 * minutes
        self.taken: list[tuple[float, str]] = []  # minutes and folder

    @property
    def seconds(self) -> float:
        return time.time() - self._start

    def take(self, model: BertForMaskedLM, last: bool = False) -> None:
        """Save the model if it is time or the end; the time that this takes counts."""
        if last or self.seconds >= self._next:
            self._next = (self.seconds // self._every + 1) * self._every
            path, seconds = self._folder / f"snapshot-{len(self.taken):04}", self.seconds
            model.save_pretrained(path)
            self.taken.append((seconds / 60, str(path)))


def train_pytorch(parts: list[Part], folder: str, start: float, snapshot_minutes: float) -> Result:
    """Train in all parts one after the other.

    Args:
        parts: see :func:`read_part`. A part with ``seconds`` ends at that time after the start, and its ``total`` are
            these seconds: rates follow the clock, because nobody knows before how many updates it allows.
        folder: for snapshots.
        start: when this process was started, ``time.time()``.
        snapshot_minutes: from one snapshot to the next.
    """
    keep_freed_memory()
    torch.set_num_threads(usable_cores())
    torch.manual_seed(parts[0]["seed"])
    config = BertConfig(**parts[0]["architecture"])
    model = AutoModelForMaskedLM.from_config(config, attn_implementation="sdpa")
    model.train()
    snapshots, speeds = Snapshots(Path(folder), start, snapshot_minutes), []
    length = parts[0]["length"]
    for part in parts:
        rows = read_rows(part["rows"])
        if part["length"] > length:
            repeat_positions(model, length)
            length = part["length"]
        if part["word_vectors"]:
            set_word_vectors(model, rows, part)
        speeds.append(train_part(model, rows, part, snapshots))
    snapshots.take(model, last=True)
    return {"snapshots": snapshots.taken, "samples_per_second": speeds}


def train_part(model: BertForMaskedLM, rows: Arrays, part: Part, snapshots: Snapshots) -> float:
    optimizers, data = make_optimizers(model, part), batches(rows, part["batch"], part["seed"])
    begin, updates = time.time(), 0
    while (done := snapshots.seconds if part["seconds"] else float(updates)) < part["total"]:
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group.setdefault("initial_lr", group["lr"]) * rate_factor(done, part)
        with torch.autocast("cpu", torch.bfloat16, enabled=bool(fast_bfloat16())):
            loss = masked_lm_loss(model, next(data))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), part["clip"])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        updates += 1
        snapshots.take(model)
    return float(updates * part["batch"] / (time.time() - begin))


def set_word_vectors(model: BertForMaskedLM, rows: Arrays, part: Part) -> None:
    """Set the word embeddings to vectors from the counts of the rows, as this project does."""
    from data_utils.word_vectors import word_vectors

    size, vocabulary = model.config.hidden_size, model.config.vocab_size
    reader = ArrayReader(pretraining_features(part["length"], part["predictions"], vocabulary), rows)
    vectors = model.config.initializer_range * word_vectors(reader, vocabulary, size, part["seed"])  # (V, H)
    embeddings: Any = model.get_input_embeddings()
    with torch.no_grad():
        embeddings.weight.copy_(torch.from_numpy(vectors))


def repeat_positions(model: BertForMaskedLM, length: int) -> None:
    """Set the vectors of positions beyond rows of ``length`` tokens to those of words, as this project does."""
    table = model.bert.embeddings.position_embeddings.weight  # (positions, H)
    with torch.no_grad():
        words = table[1 : length - 1].clone()
        for position in range(length - 1, len(table)):
            table[position] = words[(position - 1) % len(words)]


def held_out_losses(folders: list[str], rows: str) -> list[float]:
    """Return the masked-LM loss of Hugging Face folders on held-out rows, in float32."""
    torch.set_num_threads(usable_cores())
    arrays, losses = read_rows(rows), []
    starts = range(0, len(arrays["input_ids"]), SCORED_AT_ONCE)
    parts = [{name: values[start : start + SCORED_AT_ONCE] for name, values in arrays.items()} for start in starts]
    words = [int((part["masked_lm_weights"] > 0).sum()) for part in parts]
    for folder in folders:
        model = BertForMaskedLM.from_pretrained(folder).eval()
        with torch.inference_mode():
            means = [masked_lm_loss(model, part).item() for part in parts]
        losses.append(float(np.average(means, weights=words)))
    return losses
