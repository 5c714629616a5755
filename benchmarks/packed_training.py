"""Measures the gain of packing: ``python -m benchmarks.packed_training``.

Trains on Wikipedia's distribution of lengths, padded and in packs, in alternation in one process, and prints real
tokens per second of both. Rows cost the same, so the gain is at most the ratio of real tokens in a pack to those in a
padded row. For the few rows here, this ratio differs a little from the packing factor of the whole histogram.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import measuring
from benchmarks.measuring import Report
from benchmarks.settings import SIZES, architecture_of
from model.tasks import PRETRAINING

AIM = 0.95  # of the bound
ALGORITHMS = ("spfhp", "lpfhp", "nnlshp", "optimal")
PADDED, PACKED, SPEED = "padded", "packed", "tokens_per_second"
WARM_UP = 2

ARGUMENTS: dict[str, dict[str, Any]] = {
    "--sizes": {"nargs": "+", "choices": SIZES, "default": ["small"], "help": "of the model"},
    "--lengths": {"nargs": "+", "type": int, "choices": (128, 512), "default": [128, 512], "help": "of a row"},
    "--max-sequences-per-pack": {"type": int, "default": 3, "metavar": "N", "help": "as in data_utils.packing"},
    "--algorithm": {"choices": ALGORITHMS, "default": "optimal", "help": "as in data_utils.packing"},
    "--tokens": {"type": int, "default": 2048, "help": "of a micro batch, with padding"},
    "--steps": {"type": measuring.at_least_one, "default": 8, "help": "weight updates of each variant in a round"},
}


@measuring.benchmark(ARGUMENTS, rounds=7)
def main(options: argparse.Namespace) -> Report:
    from benchmarks.ours import cpu_platform, trainer
    from benchmarks.samples import packed_samples

    platform, steps = cpu_platform(), options.steps
    variants: dict[Any, Callable[[], measuring.Values]] = {}
    factors, bounds = {}, {}
    for case in ((size, length) for size in options.sizes for length in options.lengths):
        architecture, rows = architecture_of(case[0]), max(options.tokens // case[1], 1)
        settings = (options.max_sequences_per_pack, options.algorithm, rows * steps, architecture.vocab_size)
        samples = packed_samples(case[1], *settings)
        tokens = {}
        for kind, reader in ((PADDED, samples.padded), (PACKED, samples.packed)):
            tokens[kind] = float((reader.read(np.arange(reader.count))["input_mask"] > 0).sum(axis=1).mean())
            train = trainer(PRETRAINING, architecture, reader, rows, steps, platform)
            train(WARM_UP)
            real = steps * rows * tokens[kind]
            variants[(*case, kind)] = lambda train=train, real=real: {SPEED: real / train(steps)}
        factors[case], bounds[case] = samples.packing_factor, tokens[PACKED] / tokens[PADDED]
    measured = measuring.alternate(variants, options.rounds, options.json)
    table = [["size, tokens of a row", "packing factor", "bound", "padded, tokens/s", "packed", "gain", "of the bound"]]
    shares = []
    for case, bound in bounds.items():
        gains = measured.ratios((*case, PACKED), (*case, PADDED), SPEED)
        shares.append((measuring.median_of(gains) or 0.0) / bound)
        speeds = [measuring.spread(measured.values((*case, kind), SPEED), "{:,.0f}") for kind in (PADDED, PACKED)]
        gain = measuring.spread(gains, "{:.3f} ×")
        title = ", ".join(map(str, case))
        table.append([title, f"{factors[case]:.3f}", f"{bound:.3f}", *speeds, gain, f"{shares[-1]:.1%}"])
    lowest = measuring.Goal("least share of the bound", AIM, min(shares), form="{:.1%}")
    about = (
        f"Real tokens per second; median (min–max) of {options.rounds} rounds. Bound: real tokens of the packs over"
        " those of the padded rows that are trained on. A pack is more work than a padded row (more masked positions, a"
        " mask for each query), so the likely cause of a share above 100 % is noise: see the spread of the gain."
    )
    return Report([about, measuring.markdown(table), measuring.goal_table(lowest)], reached=bool(lowest.reached))


if __name__ == "__main__":
    sys.exit(main())
