"""What ``enable_recomputation`` saves in memory, and what it costs in time: ``python -m benchmarks.recomputation``.

Each measurement is a process of its own that trains a BERT of 12 layers as the trainer does. Activation memory is what
XLA sets aside for temporaries of a micro batch, above weights and gradients, by its own account of its buffers. Time is
the median of the updates.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks import measuring
from benchmarks.settings import MASKED_POSITIONS, SEED, VOCABULARY, narrow_architecture
from model.architecture import PRETRAINING

OFF, ON = "without", "with recomputation"
LEAST_SAVED, MOST_TIME = 0.60, 0.30
TEMPORARY = re.compile(r"^allocation \d+: size (\d+), .*preallocated-temp", re.MULTILINE)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = measuring.parser_of("recomputation", __doc__)
    parser.add_argument("--layers", type=int, default=12, metavar="N", help="encoder layers (default %(default)s)")
    parser.add_argument("--hidden", type=int, default=512, metavar="N", help="width (default %(default)s)")
    parser.add_argument("--micro-batch", type=int, default=16, metavar="N", help="samples (default %(default)s)")
    parser.add_argument("--length", type=int, default=128, metavar="N", help="tokens (default %(default)s)")
    parser.add_argument("--updates", type=int, default=4, metavar="N", help="of a process (default %(default)s)")
    parser.add_argument("--precision", default="float32", help="number format (default %(default)s)")
    measuring.add_rounds(parser, 3)
    return parser.parse_args(arguments)


def measure(
    layers: int, hidden: int, micro_batch: int, length: int, updates: int, precision: str, recompute: bool
) -> measuring.Values:
    """Train some updates in this process.

    Returns:
        ``seconds`` and ``processor`` seconds of an update, and the bytes of weights, moments and gradients, ``others``.
    """
    from benchmarks.ours import Clock, cpu_platform, training
    from data_utils.records.arrays import GeneratedReader
    from data_utils.records.features import pretraining_features
    from execution.interface import OptimizerSettings
    from keras_extensions.schedules import UpDown

    architecture = narrow_architecture(layers, hidden, VOCABULARY)
    platform = cpu_platform(xla=True, precision=precision, recompute=recompute)
    optimizer = platform.optimizer(OptimizerSettings("AdamW", UpDown(1e-4, 1000, 0.1)))
    reader = GeneratedReader(pretraining_features(length, MASKED_POSITIONS, VOCABULARY), SEED)
    made = training(PRETRAINING, architecture, reader, micro_batch, platform=platform, optimizer=optimizer)
    clock = Clock()
    made.run(updates + 1, [clock])
    seconds, processor = (statistics.median(times) for times in zip(*clock.executions()))
    weights = made.model.trainable_variables
    others = sum((2 * weight.dtype.size + 2 * 4) * weight.shape.num_elements() for weight in weights)
    return {"seconds": seconds, "processor": processor, "others": others}


def in_own_process(options: argparse.Namespace, recompute: bool) -> measuring.Values:
    """Measure in a process of its own, with the bytes of ``activations``."""
    names = ("layers", "hidden", "micro_batch", "length", "updates", "precision")
    with tempfile.TemporaryDirectory() as dump:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={dump} --xla_dump_hlo_as_text"
        job = {name: getattr(options, name) for name in names}
        found = measuring.in_process(
            measure, {"XLA_FLAGS": flags, "TF_CPP_MIN_LOG_LEVEL": "3"}, **job, recompute=recompute
        )
        return {**found, "activations": temporaries(Path(dump))}


def temporaries(dump: Path) -> int:
    """Return the bytes of temporaries of the largest program that XLA compiled."""
    assignments = dump.glob("*buffer-assignment.txt")
    return max(sum(map(int, TEMPORARY.findall(path.read_text(encoding="utf-8")))) for path in assignments)


def report(measured: measuring.Measured) -> str:
    """Return medians of both, and what they mean."""

    def row(title: str, name: str, form: str, scale: float, change: str) -> list[str]:
        values = ([value / scale for value in measured.values(kind, name)] for kind in (OFF, ON))
        return [title, *(measuring.spread(found, form) for found in values), change]

    saved = 1 - (measuring.median_of(measured.ratios(ON, OFF, "activations")) or 0.0)
    longer, processor = (
        (measuring.median_of(measured.ratios(ON, OFF, name)) or 0.0) - 1 for name in ("seconds", "processor")
    )
    rows = [
        ["", OFF, ON, ""],
        row("activations, MB", "activations", "{:,.0f}", 1e6, f"{saved:.0%} less"),
        row("one update, s", "seconds", "{:.2f}", 1, f"{longer:+.0%}"),
        row("the same, processor seconds", "processor", "{:.2f}", 1, f"{processor:+.0%}"),
        row("weights, moments, gradients, MB", "others", "{:,.0f}", 1e6, ""),
    ]
    reached = saved >= LEAST_SAVED and longer <= MOST_TIME
    aim = f"aim: at least {LEAST_SAVED:.0%} less memory for at most {MOST_TIME:.0%} more time"
    return f"{measuring.markdown(rows)}\n{aim}: {'reached' if reached else 'NOT reached'}"


@measuring.command_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure in alternation, and print the table."""
    options = parse(arguments)
    measured = measuring.alternate(
        {kind: partial(in_own_process, options, kind == ON) for kind in (OFF, ON)}, options.rounds
    )
    measuring.print_report(
        f"{options.layers} layers × {options.hidden}, micro batch {options.micro_batch}, {options.length} tokens,"
        f" {options.precision}, XLA, AdamW; median (min–max) of {options.rounds} processes",
        report(measured),
    )
    measuring.write_json(options.json, measured.as_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
