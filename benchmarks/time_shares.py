"""Measures how the time of a training step is divided: ``python -m benchmarks.time_shares``.

TensorFlow's profiler records every operation of some steps, with those inside of functions that XLA compiles. Their
times are summed over all threads, and each part's share of the sum is printed.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import measuring
from benchmarks.measuring import Column
from benchmarks.settings import MICRO_BATCH, make_architecture
from model.tasks import PRETRAINING

REST = "all else: bias gradients, casts, transposes, embeddings"
PARTS = {  # by the name of an operation, or of the function that it was compiled in; the first that matches
    "matrix products": r"MatMul\w*$",
    "optimizer": r"inference_(_apply|adamw_step)_|/AdamW/|:All$|:IsFinite$",
    "cross-entropy and accuracy of the words": r"cross_entropy|CrossEntropy|:ArgMax$",
    "GeLU": r"_gelu_|/intermediate/[^/]*:|Call/(Mul|Erf|Exp|Square|Neg|Sub)(_\d+)?:",  # its gradient has no scope
    "dropout (fused with LayerNorm, that of the attention apart)": r"dropout",
    "LayerNorm and residual": r"norm",
    "softmax of the attention": r"[Ss]oftmax",
    REST: "",
}
PRECISION = "auto"
MODELS, STEPS = ("mini", "base"), 5


def measure(size: str) -> measuring.Values:
    """Profile some steps in this process.

    Returns:
        The share of each part.
    """
    from benchmarks.ours import platform_of, trainer
    from benchmarks.samples import full_sequences, pretraining_spec
    from data_utils.records.arrays import ArrayReader
    from keras_extensions.backend import tf

    reader = ArrayReader(pretraining_spec(), full_sequences())
    platform = platform_of(precision=PRECISION)
    train = trainer(PRETRAINING, make_architecture(size), reader, MICRO_BATCH, STEPS, platform)
    train(1 + STEPS)
    with tempfile.TemporaryDirectory() as folder:
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
        with tf.profiler.experimental.Profile(folder, options):
            train(STEPS)
        (record,) = Path(folder).rglob("*.xplane.pb")
        return shares(record.read_bytes())


def shares(record: bytes) -> dict[str, float]:
    """Return the share of each of ``PARTS`` in the time of all operations, given a profile as TensorFlow writes it."""
    picoseconds: Counter[str] = Counter()
    for name, duration in operations(record):
        picoseconds[next(part for part, pattern in PARTS.items() if re.search(pattern, name))] += duration
    return {part: picoseconds[part] / sum(picoseconds.values()) for part in PARTS}


def operations(record: bytes) -> Iterator[tuple[str, int]]:
    """Yield every operation that ran on the host, with its picoseconds without those of operations inside of it."""
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    (host,) = (plane for plane in XSpace.FromString(record).planes if plane.name == "/host:CPU")

    def name_of(event: Any) -> str:
        module = (stat for stat in event.stats if host.stat_metadata[stat.metadata_id].name == "hlo_module")
        compiled = [stat.str_value or host.stat_metadata[stat.ref_value].name for stat in module]
        return compiled[0] if compiled else host.event_metadata[event.metadata_id].name

    for line in host.lines:
        open_events: list[list[Any]] = []  # name, end, own picoseconds; each lies within the one before
        for event in sorted(line.events, key=lambda event: (event.offset_ps, -event.duration_ps)):
            while open_events and open_events[-1][1] <= event.offset_ps:
                yield from closed(open_events.pop())
            if open_events:
                open_events[-1][2] -= event.duration_ps
            open_events.append([name_of(event), event.offset_ps + event.duration_ps, event.duration_ps])
        for left in open_events:
            yield from closed(left)


def closed(event: list[Any]) -> Iterator[tuple[str, int]]:
    """Yield an event if it is an operation, and not TensorFlow's overhead."""
    name, _, own = event
    if ("/" in name and ":" in name) or name.startswith("a_inference_"):
        yield name, own


@measuring.benchmark({}, rounds=1)
def main(options: argparse.Namespace) -> list[str]:
    variants = {size: partial(measuring.in_process, measure, measuring.only("TF"), size=size) for size in MODELS}
    measured = measuring.alternate(variants, options.rounds)
    columns = [Column(size, partial(measured.values, size), "{:.1%}") for size in MODELS]
    described = measuring.in_process("benchmarks.ours:describe", precision=PRECISION)
    return [described, measuring.table("share of the operations' time", {part: part for part in PARTS}, columns)]


if __name__ == "__main__":
    sys.exit(main())
