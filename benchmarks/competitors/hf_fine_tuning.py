"""Fine-tuning as Hugging Face's users do it in PyTorch: ``from_pretrained``, AdamW, linear warm-up and decay.

A process of its own, ``python -m benchmarks.competitors.hf_fine_tuning FOLDER``: reads ``job.json`` and ``samples.npz``
in FOLDER, and writes the outputs for the evaluation samples to ``outputs.npz`` there.

N samples · S sequence · K classes
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    get_linear_schedule_with_warmup,
)

INPUTS = {"input_ids": "input_ids", "input_mask": "attention_mask", "segment_ids": "token_type_ids"}
LABELS = {"labels": "labels", "start_positions": "start_positions", "end_positions": "end_positions"}
EVALUATION_BATCH = 64
Batch = dict[str, torch.Tensor]


def model_of(job: dict[str, Any]) -> torch.nn.Module:
    """Weights of the folder, a new head, dropout as fine-tuning has it."""
    options = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    if job["classes"] is None:
        return AutoModelForQuestionAnswering.from_pretrained(job["weights"], **options)
    return AutoModelForSequenceClassification.from_pretrained(job["weights"], num_labels=job["classes"], **options)


def optimizer_of(model: torch.nn.Module, job: dict[str, Any]) -> torch.optim.Optimizer:
    """AdamW that does not decay biases and LayerNorm."""
    decayed = [weight for weight in model.parameters() if weight.ndim >= 2]
    others = [weight for weight in model.parameters() if weight.ndim < 2]
    groups = [{"params": decayed, "weight_decay": job["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=job["learning_rate"], eps=job["epsilon"])


def batch_of(samples: dict[str, np.ndarray], names: dict[str, str], rows: np.ndarray) -> Batch:
    """Samples by Hugging Face's names, without the padding that all of them have."""
    length = int(samples["input_mask"][rows].sum(axis=1).max())
    batch = {}
    for name, theirs in names.items():
        if name in samples:
            values = samples[name][rows]
            batch[theirs] = torch.from_numpy(
                (values[:, :length] if name in INPUTS else values.reshape(-1)).astype(np.int64)
            )
    return batch


def train(model: torch.nn.Module, samples: dict[str, np.ndarray], job: dict[str, Any]) -> None:
    """The usual loop over shuffled epochs."""
    random = np.random.default_rng(job["seed"])
    count, batch = len(samples["input_ids"]), job["batch"]
    steps = count * job["epochs"] // batch
    optimizer = optimizer_of(model, job)
    schedule = get_linear_schedule_with_warmup(optimizer, int(steps * job["warmup"]), steps)
    order = np.concatenate([random.permutation(count) for _ in range(job["epochs"])])
    model.train()
    for step in range(steps):
        rows = order[step * batch : (step + 1) * batch]
        model(**batch_of(samples, {**INPUTS, **LABELS}, rows)).loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)


def outputs(model: torch.nn.Module, samples: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """``logits`` (N, K), or ``start_logits`` and ``end_logits`` (N, S); what lies beyond a sample is very small."""
    count, length = samples["input_ids"].shape
    found: dict[str, list[np.ndarray]] = {}
    model.eval()
    with torch.no_grad():
        for begin in range(0, count, EVALUATION_BATCH):
            rows = np.arange(begin, min(begin + EVALUATION_BATCH, count))
            for name, values in model(**batch_of(samples, INPUTS, rows)).items():
                array = values.numpy()
                if name != "logits":
                    array = np.pad(array, ((0, 0), (0, length - array.shape[1])), constant_values=-1e4)
                found.setdefault(name, []).append(array)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def main(folder: Path) -> None:
    """One job."""
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(job["seed"])
    with np.load(folder / "samples.npz", allow_pickle=False) as arrays:
        parts = {part: {k.split("/")[1]: arrays[k] for k in arrays if k.startswith(part)} for part in ("train", "dev")}
    model = model_of(job)
    train(model, parts["train"], job)
    np.savez(folder / "outputs.npz", **outputs(model, parts["dev"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
