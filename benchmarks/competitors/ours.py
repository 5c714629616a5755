"""This project: conversion, compile and ``fit`` as the trainer calls them, with its input pipeline."""

from __future__ import annotations

from benchmarks.competitors.fit_clock import FitClock
from benchmarks.jobs import (
    LEARNING_RATE,
    MASKED_POSITIONS,
    MICRO_BATCH,
    SEQUENCE_LENGTH,
    VOCABULARY,
    WEIGHT_DECAY,
    Job,
    Trainer,
)
from benchmarks.samples import samples
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import pretraining_features
from data_utils.records.pipeline import training_dataset
from execution.interface import ExecutionOptions, Platform, Update
from execution.select import select_platform
from keras_extensions.backend import keras
from model.architecture import PRETRAINING, Architecture, expected_blocks
from model.blocks import assemble
from model.conversion import convert
from model.huggingface import untrained
from model.losses import PretrainingObjective
from optimization.optimizers import AdamW


def build_model(architecture: Architecture, platform: Platform) -> keras.Model:
    """Hugging Face's model with random weights, converted."""
    source = untrained(PRETRAINING, architecture, seed=1984)
    blocks, conversion = convert(PRETRAINING, source, architecture, platform)
    stages = [expected_blocks(PRETRAINING, architecture.num_hidden_layers)]
    shapes = pretraining_features(SEQUENCE_LENGTH, MASKED_POSITIONS, architecture.vocab_size).shapes
    model = assemble(blocks, shapes, ("masked_lm", "next_sentence"), stages, platform)
    conversion.carry_weights(source)
    return model


def prepare(job: Job) -> Trainer:
    """See :data:`benchmarks.jobs.Trainer`."""
    platform = select_platform(ExecutionOptions(device="cpu", seed=1984))
    model = build_model(job.architecture, platform)
    optimizer = AdamW(LEARNING_RATE, weight_decay_rate=WEIGHT_DECAY)
    # Keras shortens an execution where fewer steps are left, but a model compiled for one step has no loop.
    platform.compile(model, optimizer, PretrainingObjective(), Update(micro_batches=1), max(job.steps, 2))
    reader = ArrayReader(pretraining_features(SEQUENCE_LENGTH, MASKED_POSITIONS, VOCABULARY), samples())
    clock = FitClock()

    def train(steps: int) -> float:
        data = training_dataset(
            reader, micro_batch_size=MICRO_BATCH, micro_batches_per_update=1, seed=1984, num_updates=steps
        )
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[clock])
        return clock.seconds

    return train
