"""Measures the memory and the time of ``enable_recomputation``: ``python -m benchmarks.recomputation``.

Each measurement is a process of its own that trains a BERT of 12 layers as the trainer does. Activation memory is what
XLA reserves for temporaries of a micro batch, besides weights and gradients, according to its buffer assignment. Time
is the median of the updates.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks import measuring
from benchmarks.settings import MASKED_POSITIONS, SEED, VOCABULARY, small_architecture
from model.tasks import PRETRAINING

OFF, ON = "without", "with recomputation"
TEMPORARY = re.compile(r"^allocation \d+: size (\d+), .*preallocated-temp", re.MULTILINE)

LAYERS, HIDDEN, MICRO_BATCH, LENGTH, PRECISION = 12, 512, 16, 128, "float32"
UPDATES = 4  # measured, of a process


def measure(recompute: bool) -> measuring.Values:
    """Train some updates in this process, and return ``seconds`` and ``processor`` seconds of one."""
    from benchmarks.ours import Clock, platform_of, training
    from data_utils.records.arrays import GeneratedReader
    from data_utils.records.features import pretraining_features

    architecture = small_architecture(LAYERS, HIDDEN, VOCABULARY)
    platform = platform_of(xla=True, precision=PRECISION, recompute=recompute)
    reader = GeneratedReader(pretraining_features(LENGTH, MASKED_POSITIONS, VOCABULARY), SEED)
    clock = Clock(UPDATES + 1)
    training(PRETRAINING, architecture, reader, MICRO_BATCH, platform=platform).run(UPDATES + 1, clock)
    seconds, processor = (statistics.median(times) for times in zip(*clock.calls()))
    return {"seconds": seconds, "processor": processor}


def in_own_process(recompute: bool) -> measuring.Values:
    """Measure in a process of its own; ``activations`` are the bytes of the largest program that XLA compiled."""
    with tempfile.TemporaryDirectory() as dump:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={dump} --xla_dump_hlo_as_text"
        values = measuring.in_process(measure, {"XLA_FLAGS": flags}, recompute=recompute)
        texts = [path.read_text(encoding="utf-8") for path in Path(dump).glob("*buffer-assignment.txt")]
    return {**values, "activations": max(sum(map(int, TEMPORARY.findall(text))) for text in texts)}


@measuring.benchmark({}, rounds=3)
def main(options: argparse.Namespace) -> list[str]:
    variants = {kind: partial(in_own_process, kind == ON) for kind in (OFF, ON)}
    measured = measuring.alternate(variants, options.rounds)
    columns = [
        measured.column("activations, MB", "activations", "{:,.0f}", 1e-6),
        measured.column("one update, s", "seconds"),
        measured.column("processor seconds", "processor"),
    ]
    ratios = {n: statistics.median(measured.ratios(ON, OFF, n)) for n in ("activations", "seconds")}
    verdict = f"{1 - ratios['activations']:.0%} less activation memory, {ratios['seconds'] - 1:.0%} more time"
    about = (
        f"{LAYERS} layers × {HIDDEN}, micro batch {MICRO_BATCH}, {LENGTH} tokens, {PRECISION}, XLA, AdamW; median"
        f" (min–max) of {options.rounds} processes"
    )
    return [about, measuring.table("", {OFF: OFF, ON: ON}, columns), verdict]


if __name__ == "__main__":
    sys.exit(main())
