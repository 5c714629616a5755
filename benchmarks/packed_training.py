"""What packing gains: ``python -m benchmarks.packed_training``.

Trains on Wikipedia's distribution of lengths, padded and in packs, in alternation in one process, and prints real
tokens per second of both. Their ratio can at best be the packing factor: packs hold that many times the real tokens.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.jobs import OURS, SIZES, Job

if TYPE_CHECKING:
    from benchmarks.packed_samples import Samples

AIM = 0.95  # of the packing factor
ALGORITHMS = ("spfhp", "lpfhp", "nnlshp", "optimal")


@dataclass(frozen=True)
class Result:
    """What was measured at one length; tokens per second are medians, the gain the median of ratios within rounds."""

    size: str
    max_seq_length: int
    micro_batch: int
    packing_factor: float
    padded_tokens_per_second: float
    packed_tokens_per_second: float
    gain: float

    @property
    def share(self) -> float:
        """Of the packing factor that was gained."""
        return self.gain / self.packing_factor


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packed_training", description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["small"], help="default: small")
    parser.add_argument("--lengths", nargs="+", type=int, choices=(128, 512), default=[128, 512], help="default: both")
    parser.add_argument("--max-sequences-per-pack", type=int, default=3, metavar="N", help="default %(default)s")
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="optimal", help="default %(default)s")
    parser.add_argument("--tokens", type=int, default=2048, help="of a micro batch, with padding (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="of both in turn (default %(default)s)")
    parser.add_argument("--steps", type=int, default=4, help="weight updates of a round, each (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results")
    return parser.parse_args(arguments)


def measure(size: str, length: int, options: argparse.Namespace) -> Result:
    """Both kinds of rows in alternation."""
    from benchmarks.packed_samples import make_samples
    from benchmarks.packed_trainers import trainers

    job = Job(OURS, size, warm_up=2, steps=options.steps)
    micro_batch = max(options.tokens // length, 1)
    samples: Samples = make_samples(
        length,
        options.max_sequences_per_pack,
        options.algorithm,
        micro_batch * options.steps,
        job.architecture.vocab_size,
    )
    padded, packed = trainers(job, samples, micro_batch)
    for train in (padded, packed):
        train(job.warm_up)
    rounds = []
    for number in range(options.rounds):
        rounds.append((padded(options.steps), packed(options.steps)))
        print(f"{size}, {length} tokens: round {number + 1} of {options.rounds}", file=sys.stderr)
    return Result(
        size=size,
        max_seq_length=length,
        micro_batch=micro_batch,
        packing_factor=samples.packing_factor,
        padded_tokens_per_second=statistics.median(first for first, _ in rounds),
        packed_tokens_per_second=statistics.median(second for _, second in rounds),
        gain=statistics.median(second / first for first, second in rounds),
    )


def table(results: Sequence[Result]) -> str:
    """In Markdown."""
    lines = [
        "| size | sequence | packing factor | real tokens/s, padded | in packs | gain | of the packing factor |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {r.size} | {r.max_seq_length} | {r.packing_factor:.3f} | {r.padded_tokens_per_second:,.0f} |"
        f" {r.packed_tokens_per_second:,.0f} | {r.gain:.3f} × | {r.share:.1%} |"
        for r in results
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; status 0 where at least 95 % of the packing factor is gained everywhere, else 1."""
    options = parse(arguments)
    results = [measure(size, length, options) for size in options.sizes for length in options.lengths]
    print(table(results))
    reached = all(result.share >= AIM for result in results)
    print(f"aim: at least {AIM:.0%} of the packing factor: {'reached' if reached else 'NOT reached'}")
    if options.json:
        values = [{**asdict(result), "share": result.share} for result in results]
        options.json.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
