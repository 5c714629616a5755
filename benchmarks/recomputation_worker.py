"""Time of updates of a BERT in this process."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from data_utils.records.arrays import GeneratedReader
from data_utils.records.features import pretraining_features
from data_utils.records.pipeline import training_dataset
from execution.interface import ExecutionOptions, OptimizerSettings, Update
from execution.select import select_platform
from keras_extensions.backend import keras
from keras_extensions.schedules import UpDown
from model.architecture import PRETRAINING, Architecture, expected_blocks
from model.blocks import assemble
from model.conversion import convert
from model.huggingface import untrained
from model.losses import PretrainingObjective

VOCABULARY, MASKED_POSITIONS, SEED = 30528, 20, 1984


class Clock(keras.callbacks.Callback):
    """Seconds, and processor seconds of all cores, of each update but the first, which compiles."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.processor: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Keras: an update begins."""
        self._begun, self._worked = time.perf_counter(), time.process_time()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras: an update ended."""
        if batch:
            self.seconds.append(time.perf_counter() - self._begun)
            self.processor.append(time.process_time() - self._worked)


def measure(options: argparse.Namespace, recompute: bool) -> dict[str, float]:
    """Train some updates.

    Args:
        options: see :mod:`benchmarks.recomputation`.

    Returns:
        ``seconds`` and ``processor`` seconds of an update, and the bytes of weights, moments and gradients, ``others``.
    """
    architecture = Architecture(
        hidden_size=options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=options.hidden // 64,
        intermediate_size=4 * options.hidden,
        vocab_size=VOCABULARY,
    )
    platform = select_platform(
        ExecutionOptions(device="cpu", seed=SEED, xla=True, precision=options.precision, recompute=recompute)
    )
    source = untrained(PRETRAINING, architecture, SEED)
    with platform.scope():
        blocks, conversion = convert(PRETRAINING, source, architecture, platform)
    stages = [expected_blocks(PRETRAINING, options.layers)]
    shapes = pretraining_features(options.length, MASKED_POSITIONS, architecture.vocab_size).shapes
    model = assemble(blocks, shapes, ("masked_lm", "next_sentence"), stages, platform)
    conversion.carry_weights(source)
    del source
    optimizer = platform.optimizer(OptimizerSettings("AdamW", UpDown(1e-4, 1000, 0.1)))
    platform.compile(model, optimizer, PretrainingObjective(), Update(1), 1)
    updates = options.updates + 1
    data = training_dataset(
        GeneratedReader(pretraining_features(options.length, MASKED_POSITIONS, VOCABULARY), SEED),
        micro_batch_size=options.micro_batch,
        micro_batches_per_update=1,
        seed=SEED,
        num_updates=updates,
    )
    clock = Clock()
    platform.fit(model, data, updates, [clock])
    weights = model.trainable_variables
    others = sum((2 * weight.dtype.size + 2 * 4) * weight.shape.num_elements() for weight in weights)
    seconds, processor = statistics.median(clock.seconds), statistics.median(clock.processor)
    return {"seconds": seconds, "processor": processor, "others": others}
