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
from benchmarks.measuring import Report
from keras_extensions.backend import tf
from model.architecture import Architecture
from sparsity import native
from sparsity.patterns import Grid, random_pattern
from sparsity.products import GATHER, MASKED, NATIVE, choose, make_product

BLOCK_SIZES = (16, 8, 4, 1)
AIMS = {16: 2.5, 8: 1.3}  # times the dense layer's speed
DENSE = "dense"
SECONDS = "seconds"
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


ARGUMENTS: dict[str, dict[str, Any]] = {
    "--inputs": {"type": int, "default": 768, "help": "rows of the matrix"},
    "--outputs": {"type": int, "default": 3072, "help": "its columns"},
    "--tokens": {"type": int, "default": 1024, "help": "of the input"},
    "--ratio": {"type": float, "default": 0.9, "help": "fraction of absent blocks"},
    "--clock": {"choices": list(CLOCKS), "default": "wall", "help": "cpu: processor time, for a machine in use"},
}


def step(multiply: Callable[..., Any], xla: bool) -> Callable[..., Any]:
    """Return output and gradients of ``multiply(x, *weights)`` as one function of (x, dy, weights, others)."""

    def run(x: Any, dy: Any, weights: Any, *others: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, weights])
            y = multiply(x, weights, *others)
        return y, *tape.gradient(y, [x, weights], dy)

    return tf.function(run, jit_compile=xla)


def candidates(options: argparse.Namespace) -> dict[tuple[str, str], Callable[[], Any]]:
    """Return a function that multiplies once, by (block size or ``dense``, way of multiplying)."""
    inputs, outputs = options.inputs, options.outputs
    normal = np.random.default_rng(0).standard_normal
    x, dy, matrix = (
        tf.constant(normal(shape, np.float32))
        for shape in ((options.tokens, inputs), (options.tokens, outputs), (inputs, outputs))
    )
    functions: dict[tuple[str, str], Callable[[], Any]] = {}
    for xla in (True, False):
        run = step(tf.matmul, xla)
        functions[DENSE, compiled("", xla)] = lambda run=run: run(x, dy, matrix)
    for b in BLOCK_SIZES:
        count = Architecture(sparsity_ratio=options.ratio, sparsity_block_size=b).kept_blocks(inputs, outputs)
        positions = tf.constant(random_pattern(Grid(inputs // b, outputs // b), count, 0), tf.int64)
        blocks = tf.constant(normal((count, b, b), np.float32))
        for kernel, xla in ((NATIVE, False), (GATHER, False), (GATHER, True), (MASKED, False), (MASKED, True)):
            if kernel == NATIVE and not (native.is_available() and b in native.BLOCK_SIZES):
                continue
            if kernel == GATHER and b < 4:
                continue  # gigabytes for single weights
            run = step(make_product(kernel, inputs, outputs, b), xla)
            functions[f"{b}×{b}", compiled(kernel, xla)] = lambda run=run, w=blocks, p=positions: run(x, dy, w, p)
    return functions


def compiled(kernel: str, xla: bool) -> str:
    """Return the name of a way of multiplying."""
    return f"{kernel} {'XLA' if xla else 'graph'}".strip()


def on_clock(run: Callable[[], Any], clock: Callable[[], float]) -> Callable[[], measuring.Values]:
    """Return a function that measures; if it takes more than a second, it measures only three times."""
    run()  # compiles
    taken: list[float] = []

    def measure() -> measuring.Values:
        if len(taken) < 3 or min(taken) <= 1:
            start = clock()
            run()
            tf.test.experimental.sync_devices()
            taken.append(clock() - start)
            return {SECONDS: taken[-1]}
        return {SECONDS: median(taken)}

    return measure


@measuring.benchmark(ARGUMENTS, rounds=15)
def main(options: argparse.Namespace) -> Report:
    variants = {name: on_clock(run, CLOCKS[options.clock]) for name, run in candidates(options).items()}
    measured = measuring.alternate(variants, options.rounds, options.json, quiet=True)
    dense = min((variant for variant in variants if variant[0] == DENSE), key=partial(measured.median, name=SECONDS))
    speed = measuring.Column("times the dense layer's speed", lambda variant: measured.ratios(dense, variant, SECONDS))
    flops = 6 * options.inputs * options.outputs * options.tokens
    rate = flops / (measured.median(dense, SECONDS) or 1.0) / 1e9
    about = (
        f"{options.inputs} × {options.outputs}, {options.tokens} tokens, {options.ratio:.0%} of the blocks absent;"
        f" forward and backward, float32, median (min–max) of {options.rounds} rounds of {options.clock} time. Dense:"
        f" {rate:,.0f} GFLOP/s."
    )
    titles = {variant: ", ".join(variant) for variant in variants}
    table = measuring.table("layer and way", titles, [measured.column("ms", SECONDS, "{:.1f}", 1e3), speed])
    verdicts, goals = [], []
    for b in BLOCK_SIZES:
        speeds = {way: median(speed.values((layer, way))) for layer, way in variants if layer == f"{b}×{b}"}
        way, masked = max(speeds, key=speeds.__getitem__), max(speeds[w] for w in speeds if w.startswith(MASKED))
        rule = choose("auto", b, 1 - options.ratio, on_host=True)
        text = f"{b}×{b}: fastest {way}, {speeds[way]:.2f} × dense, {speeds[way] / masked:.2f} × masked dense;"
        text += f" the layer takes {rule.kernel} ({rule.reason})"
        if "native graph" in speeds:
            density = speeds["native graph"] / masked * (1 - options.ratio)
            text += f"; native is faster than masked dense below {density:.0%} density"
        verdicts.append(text)
        if b in AIMS:
            goals.append(measuring.Goal(f"{b}×{b}: speed over dense", AIMS[b], speeds[way]))
    reached = all(goal.reached for goal in goals)
    return Report([about, table, "\n".join(verdicts), measuring.goal_table(*goals)], reached=reached)


if __name__ == "__main__":
    sys.exit(main())
