"""What ``enable_recomputation`` saves in memory, and what it costs in time: ``python -m benchmarks.recomputation``.

Each measurement is a process of its own that trains a BERT of 12 layers as the trainer does. Activation memory is what
XLA sets aside for temporaries of a micro batch, above weights and gradients, by its own account of its buffers. Time is
the median of the updates.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.commands import measurement

LEAST_SAVED, MOST_TIME = 0.60, 0.30
_TEMPORARY = re.compile(r"^allocation \d+: size (\d+), .*preallocated-temp", re.MULTILINE)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recomputation", description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=12, metavar="N", help="encoder layers (default %(default)s)")
    parser.add_argument("--hidden", type=int, default=512, metavar="N", help="width (default %(default)s)")
    parser.add_argument("--micro-batch", type=int, default=16, metavar="N", help="samples (default %(default)s)")
    parser.add_argument("--length", type=int, default=128, metavar="N", help="tokens (default %(default)s)")
    parser.add_argument("--updates", type=int, default=4, metavar="N", help="of a process (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="processes of each (default %(default)s)")
    parser.add_argument("--precision", default="float32", help="number format (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--one", choices=("on", "off"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def measured(options: argparse.Namespace, recompute: str) -> dict[str, float]:
    """The figures of one process."""
    command = ["-m", "benchmarks.recomputation", "--one", recompute, "--precision", options.precision]
    for name in ("layers", "hidden", "micro_batch", "length", "updates"):
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    with tempfile.TemporaryDirectory() as dump:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={dump} --xla_dump_hlo_as_text"
        found: dict[str, float] = measurement(*command, XLA_FLAGS=flags, TF_CPP_MIN_LOG_LEVEL="3")
        return {**found, "activations": temporaries(Path(dump))}


def temporaries(dump: Path) -> int:
    """Bytes of temporaries of the largest program that XLA compiled."""
    assignments = dump.glob("*buffer-assignment.txt")
    return max(sum(map(int, _TEMPORARY.findall(path.read_text(encoding="utf-8")))) for path in assignments)


def table(found: dict[str, list[dict[str, float]]]) -> str:
    """Medians of both, and what they mean."""
    from benchmarks.tables import markdown

    def median(variant: str, name: str) -> float:
        return statistics.median(figures[name] for figures in found[variant])

    saved = 1 - median("on", "activations") / median("off", "activations")

    def more(name: str) -> float:
        return statistics.median(on[name] / off[name] for on, off in zip(found["on"], found["off"], strict=True)) - 1

    longer = more("seconds")
    rows = [["", "without", "with recomputation", ""]]
    rows.append(
        ["activations, MB", *(f"{median(v, 'activations') / 1e6:,.0f}" for v in ("off", "on")), f"{saved:.0%} less"]
    )
    rows.append(["one update, s", *(f"{median(v, 'seconds'):.2f}" for v in ("off", "on")), f"{longer:+.0%}"])
    processor = (f"{median(v, 'processor'):.2f}" for v in ("off", "on"))
    rows.append(["the same, processor seconds", *processor, f"{more('processor'):+.0%}"])
    rows.append(["weights, moments, gradients, MB", *(f"{median(v, 'others') / 1e6:,.0f}" for v in ("off", "on")), ""])
    reached = saved >= LEAST_SAVED and longer <= MOST_TIME
    aim = f"aim: at least {LEAST_SAVED:.0%} less memory for at most {MOST_TIME:.0%} more time"
    return f"{markdown(rows)}\n{aim}: {'reached' if reached else 'NOT reached'}"


def main(arguments: list[str] | None = None) -> int:
    """Measure in alternation, and print the table."""
    options = parse(arguments)
    if options.one:
        from benchmarks.recomputation_worker import measure  # TensorFlow, in the child alone

        print(json.dumps(measure(options, options.one == "on")))
        return 0
    found: dict[str, list[Any]] = {"off": [], "on": []}
    for _ in range(options.rounds):
        for variant, figures in found.items():
            figures.append(measured(options, variant))
    print(
        f"{options.layers} layers × {options.hidden}, micro batch {options.micro_batch}, {options.length} tokens,"
        f" {options.precision}, XLA, AdamW; medians of {options.rounds} processes"
    )
    print(table(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
