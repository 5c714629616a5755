"""Training on padded sequences and on packs, as the trainer does it, in one process."""

from __future__ import annotations

import numpy as np

from benchmarks.competitors.fit_clock import FitClock
from benchmarks.jobs import LEARNING_RATE, WEIGHT_DECAY, Job, Trainer
from benchmarks.packed_samples import Samples
from data_utils.records.arrays import ArrayReader
from data_utils.records.pipeline import training_dataset
from execution.interface import ExecutionOptions, Platform, Update
from execution.select import select_platform
from model.architecture import PRETRAINING, expected_blocks
from model.blocks import assemble
from model.conversion import convert
from model.huggingface import untrained
from model.losses import PretrainingObjective
from optimization.optimizers import AdamW


def trainers(job: Job, samples: Samples, micro_batch: int) -> tuple[Trainer, Trainer]:
    """For padded sequences and for packs; each trains a number of steps and returns real tokens per second."""
    platform = select_platform(ExecutionOptions(device="cpu", seed=1984))
    return (
        trainer(job, samples.padded, micro_batch, platform),
        trainer(job, samples.packed, micro_batch, platform),
    )


def trainer(job: Job, reader: ArrayReader, micro_batch: int, platform: Platform) -> Trainer:
    """One of the two."""
    architecture = job.architecture
    source = untrained(PRETRAINING, architecture, seed=1984)
    blocks, conversion = convert(PRETRAINING, source, architecture, platform)
    stages = [expected_blocks(PRETRAINING, architecture.num_hidden_layers)]
    model = assemble(blocks, reader.spec.shapes, ("masked_lm", "next_sentence"), stages, platform)
    conversion.carry_weights(source)
    objective = PretrainingObjective()
    optimizer = AdamW(LEARNING_RATE, weight_decay_rate=WEIGHT_DECAY)
    platform.compile(model, optimizer, objective, Update(micro_batches=1), max(job.steps, 2))
    tokens_per_row = float(np.mean(np.sum(reader.read(np.arange(reader.count))["input_mask"] > 0, axis=1)))
    clock = FitClock()

    def train(steps: int) -> float:
        data = training_dataset(
            reader, micro_batch_size=micro_batch, micro_batches_per_update=1, seed=1984, num_updates=steps
        )
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[clock])
        return steps * micro_batch * tokens_per_row / clock.seconds

    return train
