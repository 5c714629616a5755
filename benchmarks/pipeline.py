"""Measures whether pipeline stages overlap: two stages on one thread each, pipelined and in sequence.

``python -m benchmarks.pipeline --picture timeline.svg`` prints the throughput of each schedule relative to the same
stages in sequence, with its bound, and draws the last update of each schedule.

B micro batch · S sequence
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measuring
from benchmarks.measuring import Column, Measured
from benchmarks.ours import build, platform_of
from benchmarks.settings import MICRO_BATCH, SEED, SEQUENCE_LENGTH, small_architecture
from data_utils.records.arrays import GeneratedReader
from data_utils.squad.windows import squad_features
from execution.interface import Update
from execution.software.dropout import DropoutSeeds
from execution.software.training_step import UpdateRule
from keras_extensions.backend import tf
from model.losses import SpanObjective
from model.tasks import SQUAD
from optimization.optimizers import AdamW
from pipeline.engine import PipelineEngine, Stage
from pipeline.schedule import BACKWARD, FORWARD, Job, make_schedule, makespan, simulate

SEQUENTIAL = "sequential"
SCHEDULES = (SEQUENTIAL, "grouped", "interleaved")
SECONDS, BOUND, DOUBLED = "seconds", "bound", "doubled"
LAYERS, HIDDEN, VOCABULARY = 4, 256, 4096
MICRO_BATCHES = 16  # of an update
CORES = 2  # one for each stage
Stamp = tuple[Job, float, float]  # a job, its start and its end


class JobClock:
    """Collects the start and end of jobs from TensorFlow's threads."""

    def __init__(self) -> None:
        self.stamps: list[Stamp] = []
        self._lock = threading.Lock()

    def timed(self, job: Job, inputs: Any, work: Callable[[], Any]) -> Any:
        """Return the result of ``work``, begun once ``inputs`` are computed."""
        # One number of each input, so that the clock waits for all. Not stateful: TensorFlow would put stateful
        # operations one after the other, and nothing would overlap.
        computed = [tf.reshape(value, [-1])[:1] for value in tf.nest.flatten(inputs)]
        start = tf.numpy_function(lambda *_: np.float64(time.perf_counter()), computed, tf.float64, stateful=False)
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


def timed_stage(clock: JobClock) -> Callable[..., Stage]:
    """Return a function that makes stages whose three functions are timed."""
    numbers = itertools.count()

    def make(*arguments: Any) -> Stage:
        stage, number = Stage(*arguments), next(numbers)
        forward, backward, both = stage.forward, stage.backward, stage.forward_and_backward
        stage.forward = lambda *a: clock.timed((FORWARD, number), a, lambda: forward(*a))
        stage.backward = lambda *a: clock.timed((BACKWARD, number), a, lambda: backward(*a))
        stage.forward_and_backward = lambda *a: clock.timed((BACKWARD, number), a, lambda: both(*a))
        return stage

    return make


def make_update(model: Any, batch: dict[str, tf.Tensor], schedule: str) -> Callable[[], list[Stamp]]:
    """Return a function that does one update under a schedule and returns its stamps."""
    clock, update = JobClock(), Update(MICRO_BATCHES)
    rule = UpdateRule(AdamW(1e-5), SpanObjective(), update, model.trainable_variables)
    devices, order = ["/CPU:0", "/CPU:1"], make_schedule(schedule, 2)
    engine = PipelineEngine(model, devices, order, rule, DropoutSeeds(), SEED, True, timed_stage(clock))
    step = tf.function(engine.update, autograph=False)

    def run() -> list[Stamp]:
        clock.stamps.clear()
        float(step(batch)["loss"])
        return list(clock.stamps)

    return run


def shortest(stamps: list[Stamp], micro_batches: int) -> dict[str, float]:
    """Return the seconds that an update takes at least under each schedule, if a stage does one job at a time.

    Args:
        stamps: time stamps of the stages in sequence, which give the length of each job.
    """
    alone: dict[Job, list[float]] = {}
    for job, start, end in stamps:
        alone.setdefault(job, []).append(end - start)
    durations = {job: statistics.median(lengths) for job, lengths in alone.items()}
    return {name: makespan(simulate(make_schedule(name, 2), durations, micro_batches, [0, 1])) for name in SCHEDULES}


def doubled(stamps: list[Stamp]) -> float:
    """Return the share of an update in which a stage did two jobs at once."""
    begun, ended = min(start for _, start, _ in stamps), max(end for _, _, end in stamps)
    both = 0.0
    for stage in (0, 1):
        jobs = sorted((start, end) for (_, number), start, end in stamps if number == stage)
        both += sum(max(0.0, min(a[1], b[1]) - b[0]) for a, b in itertools.pairwise(jobs))
    return both / (ended - begun)


def report(measured: Measured) -> list[str]:
    columns = [
        measured.column("update, s", SECONDS),
        Column("× sequence", lambda name: measured.ratios(SEQUENTIAL, name, SECONDS)),
        measured.column("bound", BOUND),
        measured.column("a stage did two jobs", DOUBLED, "{:.0%}"),
    ]
    text = (
        "Bound: the time of the update in sequence, over the time that the schedule needs for the same jobs if each"
        " takes as long as in sequence, a stage does one job at a time, and all work between the jobs of the sequence"
        " (sums of gradients, the optimizer) is done meanwhile; two cores allow 2 at most. On a CPU a stage can do two"
        " jobs at once, a forward pass and a backward pass. The last column is the share of the update in which it did."
    )
    return [measuring.table("schedule", {name: name for name in SCHEDULES}, columns), text]


def draw(stamps: dict[str, list[Stamp]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 1.6 * len(stamps)), layout="tight")
    axes = figure.subplots(len(stamps), 1, sharex=True)
    for axis, (name, jobs) in zip(axes, stamps.items()):
        begun = min(start for _, start, _ in jobs)
        for (kind, stage), start, end in jobs:
            # Thin and in front, because on a CPU a stage's forward and backward pass may overlap.
            color, height, order = ("tab:blue", 0.4, 2) if kind == FORWARD else ("tab:orange", 0.8, 1)
            look = {"color": color, "edgecolor": "white", "linewidth": 0.4, "zorder": order}
            axis.barh(stage, end - start, height, start - begun, **look)
        axis.set_yticks([0, 1], ["stage 0", "stage 1"])
        axis.invert_yaxis()
        axis.set_title(f"{name} (blue: forward, orange: backward)", fontsize=9, loc="left")
    axes[-1].set_xlabel("seconds")
    figure.savefig(path)


@measuring.benchmark({"--picture": {"type": Path, "metavar": "FILE", "help": "SVG or PNG of the timelines"}}, rounds=3)
def main(options: argparse.Namespace) -> list[str]:
    sizes = small_architecture(LAYERS, HIDDEN, VOCABULARY)
    half = ["hid"] * (LAYERS // 2)
    # In float32, because the stages are compiled with XLA, which has no fast bfloat16 products on CPUs.
    platform = platform_of(threads=1, device_mapping=(0, 1), pipeline_devices=2, precision="float32")
    spec = squad_features(SEQUENCE_LENGTH, sizes.vocab_size)
    model, _ = build(SQUAD, sizes, spec.shapes, platform, stages=[["emb", *half], [*half, "qa_head"]])
    rows = GeneratedReader(spec, SEED).read(np.arange(MICRO_BATCHES * MICRO_BATCH))
    split = (MICRO_BATCHES, MICRO_BATCH, -1)
    batch = {name: tf.constant(values.reshape(split)) for name, values in rows.items()}  # (micro batches, B, …)
    updates = {name: make_update(model, batch, name) for name in SCHEDULES}
    stamps = {name: update() for name, update in updates.items()}  # compiles
    bounds: dict[str, float] = {}

    def timed(name: str) -> measuring.Values:
        begun = time.perf_counter()
        stamps[name] = updates[name]()
        seconds = time.perf_counter() - begun
        if name == SEQUENTIAL:  # the first of a round
            least = shortest(stamps[name], MICRO_BATCHES)
            bounds.update({other: min(seconds / shortest_time, CORES) for other, shortest_time in least.items()})
        return {SECONDS: seconds, BOUND: bounds[name], DOUBLED: doubled(stamps[name])}

    variants = {name: partial(timed, name) for name in SCHEDULES}
    measured = measuring.alternate(variants, options.rounds)
    parts = [f"Median (min–max) of {options.rounds} rounds.", *report(measured)]
    if options.picture:
        draw(stamps, options.picture)
        parts.append(f"timelines: {options.picture}")
    return parts


if __name__ == "__main__":
    sys.exit(main())
