"""Hugging Face PyTorch, eager, as shipped: the model's own loss and ``torch.optim.AdamW``."""

from __future__ import annotations

import torch

from benchmarks.competitors import pytorch
from benchmarks.jobs import LEARNING_RATE, WEIGHT_DECAY, Job, Trainer
from benchmarks.samples import hugging_face_samples, samples


def prepare(job: Job) -> Trainer:
    """See :data:`benchmarks.jobs.Trainer`."""
    model = pytorch.model_of(job)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    data = pytorch.tensors(hugging_face_samples(samples(), "int64"))
    return pytorch.loop(data, lambda batch: model(**batch).loss, optimizer)
