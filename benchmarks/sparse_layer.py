"""Compares a block-sparse layer with a dense one: ``python -m benchmarks.sparse_layer``.

One matrix, forward and backward: output, gradient of the input, gradients of the weights. Every way of multiplying that
this machine has takes its turn in each round; ratios are taken within a round, medians over rounds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks import measuring
from keras_extensions.backend import tf
from model.architecture import Architecture
from sparsity import native
from sparsity.figures import kept_blocks
from sparsity.patterns import random_pattern
from sparsity.products import GATHER, MASKED, NATIVE, make_product

BLOCK_SIZES = (16, 8, 4, 1)
DENSE = "dense"
SECONDS = "seconds"
INPUTS, OUTPUTS, TOKENS = 768, 3072, 1024
RATIO = 0.9  # of the blocks are absent


def step(multiply: Callable[..., Any], xla: bool) -> Callable[..., Any]:
    """Return output and gradients of ``multiply(x, *weights)`` as one function of (x, dy, weights, others)."""

    def run(x: Any, dy: Any, weights: Any, *others: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, weights])
            y = multiply(x, weights, *others)
        return y, *tape.gradient(y, [x, weights], dy)

    return tf.function(run, jit_compile=xla)


def candidates() -> dict[tuple[str, str], Callable[[], Any]]:
    """Return a function that multiplies once, by (block size or ``dense``, way of multiplying)."""
    normal = np.random.default_rng(0).standard_normal
    x, dy, matrix = (
        tf.constant(normal(shape, np.float32)) for shape in ((TOKENS, INPUTS), (TOKENS, OUTPUTS), (INPUTS, OUTPUTS))
    )
    functions: dict[tuple[str, str], Callable[[], Any]] = {}
    for xla in (True, False):
        run = step(tf.matmul, xla)
        functions[DENSE, compiled("", xla)] = partial(run, x, dy, matrix)
    for b in BLOCK_SIZES:
        count = kept_blocks(Architecture(sparsity_ratio=RATIO, sparsity_block_size=b), INPUTS, OUTPUTS)
        positions = tf.constant(random_pattern(INPUTS * OUTPUTS // b**2, count, 0), tf.int64)
        blocks = tf.constant(normal((count, b, b), np.float32))
        for kernel, xla in ((NATIVE, False), (GATHER, False), (GATHER, True), (MASKED, False), (MASKED, True)):
            if kernel == NATIVE and not (native.is_available() and b in native.BLOCK_SIZES):
                continue
            if kernel == GATHER and b < 4:
                continue  # gigabytes for single weights
            run = step(make_product(kernel, INPUTS, OUTPUTS, b), xla)
            functions[f"{b}×{b}", compiled(kernel, xla)] = partial(run, x, dy, blocks, positions)
    return functions


def compiled(kernel: str, xla: bool) -> str:
    return f"{kernel} {'XLA' if xla else 'graph'}".strip()


def timed(run: Callable[[], Any]) -> Callable[[], measuring.Values]:
    """Return a function that measures ``run``; if it takes more than a second, it measures only three times."""
    run()  # compiles
    taken: list[float] = []

    def measure() -> measuring.Values:
        if len(taken) < 3 or min(taken) <= 1:
            start = time.perf_counter()
            run()
            tf.test.experimental.sync_devices()
            taken.append(time.perf_counter() - start)
            return {SECONDS: taken[-1]}
        return {SECONDS: median(taken)}

    return measure


@measuring.benchmark({}, rounds=15)
def main(options: argparse.Namespace) -> list[str]:
    variants = {name: timed(run) for name, run in candidates().items()}
    measured = measuring.alternate(variants, options.rounds, quiet=True)
    dense_variants = [variant for variant in variants if variant[0] == DENSE]
    dense = min(dense_variants, key=lambda variant: measured.median(variant, SECONDS))
    speed = measuring.Column("times the dense layer's speed", lambda variant: measured.ratios(dense, variant, SECONDS))
    flops = 6 * INPUTS * OUTPUTS * TOKENS
    rate = flops / measured.median(dense, SECONDS) / 1e9
    about = (
        f"{INPUTS} × {OUTPUTS}, {TOKENS} tokens, {RATIO:.0%} of the blocks absent;"
        f" forward and backward, float32, median (min–max) of {options.rounds} rounds. Dense:"
        f" {rate:,.0f} GFLOP/s."
    )
    titles = {variant: ", ".join(variant) for variant in variants}
    table = measuring.table("layer and way", titles, [measured.column("ms", SECONDS, "{:.1f}", 1e3), speed])
    verdicts = []
    for b in BLOCK_SIZES:
        speeds = {way: median(speed.values((layer, way))) for layer, way in variants if layer == f"{b}×{b}"}
        way, masked = max(speeds, key=speeds.__getitem__), max(speeds[w] for w in speeds if w.startswith(MASKED))
        text = f"{b}×{b}: fastest {way}, {speeds[way]:.2f} × dense"
        if "native graph" in speeds:
            density = speeds["native graph"] / masked * (1 - RATIO)
            text += f"; native is faster than masked dense below {density:.0%} density"
        verdicts.append(text)
    return [about, table, "\n".join(verdicts)]


if __name__ == "__main__":
    sys.exit(main())
