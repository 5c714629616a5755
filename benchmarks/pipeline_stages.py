"""Two pipeline stages on two logical CPU devices of one thread each, with a clock on every job.

B micro batch · S sequence
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from data_utils.squad.windows import squad_features
from execution.interface import ExecutionOptions, Update
from execution.select import select_platform
from execution.software.layers import DropoutSeeds
from execution.software.pipeline.engine import PipelineEngine, Stage
from execution.software.pipeline.schedule import BACKWARD, FORWARD, Job, make_schedule
from execution.software.training_step import UpdateRule
from keras_extensions.backend import tf
from model.architecture import SQUAD, Architecture
from model.blocks import assemble
from model.conversion import convert
from model.huggingface import untrained
from model.losses import SpanObjective
from optimization.optimizers import AdamW

SEQUENCE_LENGTH, MICRO_BATCH = 128, 8
Stamp = tuple[Job, float, float]


class Clock:
    """Collects the start and end of jobs from TensorFlow's threads."""

    def __init__(self) -> None:
        self.stamps: list[Stamp] = []
        self._lock = threading.Lock()

    def timed(self, job: Job, inputs: Any, work: Callable[[], Any]) -> Any:
        """The result of ``work``, begun once ``inputs`` are there."""
        # One number of each input, so that the clock waits for all. Not stateful: TensorFlow would put stateful
        # operations one after the other, and nothing would overlap.
        there = [tf.reshape(value, [-1])[:1] for value in tf.nest.flatten(inputs)]
        start = tf.numpy_function(lambda *_: np.float64(time.perf_counter()), there, tf.float64, stateful=False)
        with tf.control_dependencies([start]):
            result = work()
        flat = tf.nest.flatten(result)

        def record(began: np.ndarray, _: np.ndarray) -> np.float32:
            now = time.perf_counter()
            with self._lock:
                self.stamps.append((job, float(began), now))
            return np.float32(0.0)

        with tf.control_dependencies(flat):
            zero = tf.numpy_function(record, [start, flat[0]], tf.float32, stateful=False)
        zero = tf.ensure_shape(zero, [])
        # Added, because TensorFlow leaves out a stateless operation whose result nobody uses.
        return tf.nest.map_structure(lambda value: value + zero if value.dtype == tf.float32 else value, result)


def timed_stage(clock: Clock) -> Callable[..., Stage]:
    """A maker of stages whose three functions are on the clock."""
    made: list[Stage] = []

    def make(*arguments: Any) -> Stage:
        stage, number = Stage(*arguments), len(made)
        made.append(stage)
        forward, backward, both = stage.forward, stage.backward, stage.forward_and_backward
        stage.forward = lambda *a: clock.timed((FORWARD, number), a, lambda: forward(*a))
        stage.backward = lambda *a: clock.timed((BACKWARD, number), a, lambda: backward(*a))
        stage.forward_and_backward = lambda *a: clock.timed((BACKWARD, number), a, lambda: both(*a))
        return stage

    return make


def make_updates(architecture: Architecture, schedules: list[str], micro_batches: int) -> dict[str, Callable]:
    """By schedule, a function that does one update and returns its seconds and its stamps.

    Must be called before TensorFlow computes anything.
    """
    layers = architecture.num_hidden_layers // 2
    platform = select_platform(
        ExecutionOptions(device="cpu", threads=1, device_mapping=(0, 1), pipeline_devices=2, recompute=False)
    )
    source = untrained(SQUAD, architecture, seed=1984)
    blocks, conversion = convert(SQUAD, source, architecture, platform, ["qa_head"])
    stages = [["emb"] + ["hid"] * layers, ["hid"] * layers + ["qa_head"]]
    shapes = squad_features(SEQUENCE_LENGTH, architecture.vocab_size).shapes
    model = assemble(blocks, shapes, ("start_logits", "end_logits"), stages, platform)
    conversion.carry_weights(source)
    batch = random_batch(architecture.vocab_size, micro_batches)
    return {name: one_update(model, batch, name, micro_batches) for name in schedules}


def one_update(model: Any, batch: dict[str, tf.Tensor], schedule: str, micro_batches: int) -> Callable:
    """An update under one schedule."""
    clock, update = Clock(), Update(micro_batches)
    rule = UpdateRule(AdamW(1e-5), SpanObjective(), update, model.trainable_variables)
    devices = ["/CPU:0", "/CPU:1"]
    engine = PipelineEngine(
        model, devices, make_schedule(schedule, 2), rule, DropoutSeeds(), 1984, True, timed_stage(clock)
    )
    step = tf.function(engine.update, autograph=False)

    def run() -> tuple[float, list[Stamp]]:
        clock.stamps.clear()
        begun = time.perf_counter()
        float(step(batch)["loss"])
        return time.perf_counter() - begun, list(clock.stamps)

    return run


def random_batch(vocabulary: int, micro_batches: int) -> dict[str, tf.Tensor]:
    """Full windows of random word pieces."""
    random = np.random.default_rng(1984)
    tokens, label = (micro_batches, MICRO_BATCH, SEQUENCE_LENGTH), (micro_batches, MICRO_BATCH, 1)
    arrays = {
        "input_ids": random.integers(0, vocabulary, tokens),
        "input_mask": np.ones(tokens),
        "segment_ids": np.zeros(tokens),
        "start_positions": random.integers(0, SEQUENCE_LENGTH, label),
        "end_positions": random.integers(0, SEQUENCE_LENGTH, label),
    }
    return {name: tf.constant(values, tf.int32) for name, values in arrays.items()}
