"""What both PyTorch competitors share: the model as shipped, the data, all cores, and the loop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from transformers import BertForPreTraining

from benchmarks.competitors.hugging_face import bert_config
from benchmarks.jobs import MICRO_BATCH, Job, Trainer
from benchmarks.samples import batches

Batch = dict[str, torch.Tensor]


def model_of(job: Job) -> BertForPreTraining:
    """Random weights, training mode, attention as shipped (scaled dot-product)."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(1984)
    model = BertForPreTraining(bert_config(job.architecture))
    assert model.config._attn_implementation == "sdpa"
    return model.train()


def tensors(data: dict[str, np.ndarray], micro_batch: int = MICRO_BATCH) -> Iterator[Batch]:
    """Micro batches without end."""
    for batch in batches(data, micro_batch):
        yield {name: torch.from_numpy(values) for name, values in batch.items()}


def loop(data: Iterator[Batch], loss_of: Callable[[Batch], torch.Tensor], optimizer: torch.optim.Optimizer) -> Trainer:
    """The usual loop: loss, backward, step."""

    def train(steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(steps):
            loss = loss_of(next(data))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loss.item()
        return time.perf_counter() - begin

    return train
