"""What packing gains: ``python -m benchmarks.packed_training``.

Trains on Wikipedia's distribution of lengths, padded and in packs, in alternation in one process, and prints real
tokens per second of both. Their ratio can at best be the packing factor: packs hold that many times the real tokens.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks import measuring
from benchmarks.settings import SIZES, architecture_of
from model.architecture import PRETRAINING

AIM = 0.95  # of the packing factor
ALGORITHMS = ("spfhp", "lpfhp", "nnlshp", "optimal")
PADDED, PACKED, SPEED = "padded", "packed", "tokens_per_second"
WARM_UP = 2


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = measuring.parser_of("packed_training", __doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["small"], help="default: small")
    parser.add_argument("--lengths", nargs="+", type=int, choices=(128, 512), default=[128, 512], help="default: both")
    parser.add_argument("--max-sequences-per-pack", type=int, default=3, metavar="N", help="default %(default)s")
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="optimal", help="default %(default)s")
    parser.add_argument("--tokens", type=int, default=2048, help="of a micro batch, with padding (default %(default)s)")
    parser.add_argument("--steps", type=int, default=4, help="weight updates of a round, each (default %(default)s)")
    measuring.add_rounds(parser, 7)
    return parser.parse_args(arguments)


def measure(size: str, length: int, options: argparse.Namespace) -> tuple[float, measuring.Measured]:
    """Return the packing factor, and real tokens per second of both kinds of rows in alternation."""
    from benchmarks.ours import cpu_platform, trainer
    from benchmarks.samples import packed_samples

    architecture, steps = architecture_of(size), options.steps
    rows = max(options.tokens // length, 1)
    limit = options.max_sequences_per_pack
    samples = packed_samples(length, limit, options.algorithm, rows * steps, architecture.vocab_size)
    platform = cpu_platform()

    def variant(reader) -> Callable[[], measuring.Values]:
        train = trainer(PRETRAINING, architecture, reader, rows, steps, platform)
        train(WARM_UP)
        tokens = float(np.mean(np.sum(reader.read(np.arange(reader.count))["input_mask"] > 0, axis=1)))
        return lambda: {SPEED: steps * rows * tokens / train(steps)}

    variants = {PADDED: variant(samples.padded), PACKED: variant(samples.packed)}
    return samples.packing_factor, measuring.alternate(variants, options.rounds)


@measuring.command_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; status 0 where at least 95 % of the packing factor is gained everywhere, else 1."""
    options = parse(arguments)
    rows = [["size", "sequence", "packing factor", "real tokens/s, padded", "in packs", "gain", "of the factor"]]
    shares, found = [], []
    for size in options.sizes:
        for length in options.lengths:
            factor, measured = measure(size, length, options)
            gains = measured.ratios(PACKED, PADDED, SPEED)
            shares.append((measuring.median_of(gains) or 0.0) / factor)
            speeds = [measuring.spread(measured.values(kind, SPEED), "{:,.0f}") for kind in (PADDED, PACKED)]
            cells = [f"{factor:.3f}", *speeds, measuring.spread(gains, "{:.3f} ×"), f"{shares[-1]:.1%}"]
            rows.append([size, str(length), *cells])
            figures = {"packing_factor": factor, "share": shares[-1], "measurements": measured.as_json()}
            found.append({"size": size, "max_seq_length": length, **figures})
    reached = all(share >= AIM for share in shares)
    aim = f"aim: at least {AIM:.0%} of the packing factor: {'reached' if reached else 'NOT reached'}"
    measuring.print_report(f"Median (min–max) of {options.rounds} rounds.", measuring.markdown(rows), aim)
    measuring.write_json(options.json, found)
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
