"""Measures the gain of packing: ``python -m benchmarks.packed_training``.

Trains on Wikipedia's distribution of lengths, padded and in packs, in alternation in one process, and prints real
tokens per second of both. Rows cost the same, so the gain is at most the ratio of real tokens in a pack to those in a
padded row.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks import measuring
from benchmarks.settings import make_architecture
from model.tasks import PRETRAINING

SIZE, LENGTHS = "small", (128, 512)
TOKENS, STEPS = 2048, 8  # of a micro batch, with padding; weight updates of each variant in a round
PADDED, PACKED, SPEED = "padded", "packed", "tokens_per_second"
WARM_UP = 2


def real_tokens_per_second(train: Callable[[int], float], real: float) -> measuring.Values:
    """Train ``STEPS`` updates, which see ``real`` tokens that are not padding."""
    return {SPEED: real / train(STEPS)}


@measuring.benchmark({}, rounds=7)
def main(options: argparse.Namespace) -> list[str]:
    from benchmarks.ours import platform_of, trainer
    from benchmarks.samples import packed_samples

    platform, architecture = platform_of(), make_architecture(SIZE)
    variants: dict[Any, Callable[[], measuring.Values]] = {}
    bounds = {}
    for length in LENGTHS:
        rows = TOKENS // length
        readers = packed_samples(length, rows * STEPS, architecture.vocab_size)
        tokens = {}
        for kind, reader in zip((PADDED, PACKED), readers):
            tokens[kind] = float((reader.read(np.arange(reader.count))["input_mask"] > 0).sum(axis=1).mean())
            train = trainer(PRETRAINING, architecture, reader, rows, STEPS, platform)
            train(WARM_UP)
            real = STEPS * rows * tokens[kind]
            variants[length, kind] = partial(real_tokens_per_second, train, real)
        bounds[length] = tokens[PACKED] / tokens[PADDED]
    measured = measuring.alternate(variants, options.rounds)
    table = [["tokens of a row", "bound", "padded, tokens/s", "packed", "gain", "of the bound"]]
    for length, bound in bounds.items():
        gains = measured.ratios((length, PACKED), (length, PADDED), SPEED)
        share = statistics.median(gains) / bound
        speeds = [measuring.spread(measured.values((length, kind), SPEED), "{:,.0f}") for kind in (PADDED, PACKED)]
        gain = measuring.spread(gains, "{:.3f} ×")
        table.append([str(length), f"{bound:.3f}", *speeds, gain, f"{share:.1%}"])
    about = (
        f"Real tokens per second of BERT-{SIZE}; median (min–max) of {options.rounds} rounds. Bound: real"
        " tokens of the packs over those of the padded rows that are trained on. A pack is more work than a padded row"
        " (more masked positions, a mask for each query), so the likely cause of a share above 100 % is noise: see the"
        " spread of the gain."
    )
    return [about, measuring.markdown(table)]


if __name__ == "__main__":
    sys.exit(main())
