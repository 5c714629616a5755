"""A block-sparse layer beside a dense one: ``python -m benchmarks.sparse_layer``.

One matrix, forward and backward: output, gradient of the input, gradients of the weights. Every way of multiplying that
this machine has takes its turn in each round; ratios are taken within a round, medians over rounds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from benchmarks import measuring
from keras_extensions.backend import tf
from model.architecture import Architecture
from sparsity import native
from sparsity.patterns import Grid, random_pattern
from sparsity.products import GATHER, MASKED, NATIVE, choose, product_of

BLOCK_SIZES = (16, 8, 4, 1)
AIMS = {16: 2.5, 8: 1.3}  # times the dense layer's speed
DENSE = "dense"
SECONDS = "seconds"
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = measuring.parser_of("sparse_layer", __doc__)
    parser.add_argument("--inputs", type=int, default=768, help="default %(default)s")
    parser.add_argument("--outputs", type=int, default=3072, help="default %(default)s")
    parser.add_argument("--tokens", type=int, default=1024, help="default %(default)s")
    parser.add_argument("--ratio", type=float, default=0.9, help="share of the blocks that is absent (default 0.9)")
    measuring.add_rounds(parser, 15)
    parser.add_argument(
        "--clock", choices=list(CLOCKS), default="wall", help="cpu: processor time, for a machine that others use too"
    )
    return parser.parse_args(arguments)


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
    found: dict[tuple[str, str], Callable[[], Any]] = {}
    for xla in (True, False):
        run = step(tf.matmul, xla)
        found[DENSE, compiled("", xla)] = lambda run=run: run(x, dy, matrix)
    for b in BLOCK_SIZES:
        count = Architecture(sparsity_ratio=options.ratio, sparsity_block_size=b).kept_blocks(inputs, outputs)
        positions = tf.constant(random_pattern(Grid(inputs // b, outputs // b), count, 0), tf.int64)
        blocks = tf.constant(normal((count, b, b), np.float32))
        for kernel, xla in ((NATIVE, False), (GATHER, False), (GATHER, True), (MASKED, False), (MASKED, True)):
            if kernel == NATIVE and not (native.is_available() and b in native.BLOCK_SIZES):
                continue
            if kernel == GATHER and b < 4:
                continue  # gigabytes for single weights
            run = step(product_of(kernel, inputs, outputs, b), xla)
            found[f"{b}×{b}", compiled(kernel, xla)] = lambda run=run, w=blocks, p=positions: run(x, dy, w, p)
    return found


def compiled(kernel: str, xla: bool) -> str:
    """Return the name of a way of multiplying."""
    return f"{kernel} {'XLA' if xla else 'graph'}".strip()


def on_clock(run: Callable[[], Any], clock: Callable[[], float]) -> Callable[[], measuring.Values]:
    """Return a measurement; a way that is slower than a second is measured three times, and then assumed."""
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


def report(options: argparse.Namespace, measured: measuring.Measured) -> tuple[str, bool]:
    """Return a table and verdicts, and whether the aims are reached."""
    times = {variant: measured.values(variant, SECONDS) for variant in measured.rounds}
    dense = min((seconds for (layer, _), seconds in times.items() if layer == DENSE), key=median)
    flops = 6 * options.inputs * options.outputs * options.tokens
    rows = [["layer", "way", "ms", "times the dense layer's speed"]]
    speeds: dict[str, dict[str, float]] = {}
    for (layer, way), seconds in times.items():
        ratios = [d / s for d, s in zip(dense, seconds)]
        speeds.setdefault(layer, {})[way] = median(ratios)
        milliseconds = [second * 1e3 for second in seconds]
        rows.append([layer, way, measuring.spread(milliseconds, "{:.1f}"), measuring.spread(ratios)])
    lines = [
        f"{options.inputs} × {options.outputs}, {options.tokens} tokens, {options.ratio:.0%} of the blocks absent;"
        f" forward and backward, float32, median (min–max) of"
        f" {options.rounds} rounds of {options.clock} time. Dense: {flops / median(dense) / 1e9:,.0f} GFLOP/s.",
        "",
        measuring.markdown(rows),
        "",
    ]
    reached = True
    for b in BLOCK_SIZES:
        ways = speeds[f"{b}×{b}"]
        way = max(ways, key=lambda name: ways[name])
        rule = choose("auto", b, 1 - options.ratio, on_host=True)
        masked = max(speed for name, speed in ways.items() if name.startswith("masked"))
        text = f"{b}×{b}: fastest {way}, {ways[way]:.2f} × dense, {ways[way] / masked:.2f} × masked dense;"
        text += f" the layer takes {rule.kernel} ({rule.reason})"
        if b in AIMS:
            reached = reached and ways[way] >= AIMS[b]
            text += f"; aim {AIMS[b]} × dense: {'reached' if ways[way] >= AIMS[b] else 'NOT reached'}"
        if "native graph" in ways:
            rate = ways["native graph"] / masked * (1 - options.ratio)
            text += f"; native is faster than masked dense below {rate:.0%} density"
        lines.append(text)
    return "\n".join(lines), reached


@measuring.command_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; status 0 where the aims are reached, 1 where they are not."""
    options = parse(arguments)
    clock = CLOCKS[options.clock]
    variants = {name: on_clock(run, clock) for name, run in candidates(options).items()}
    measured = measuring.alternate(variants, options.rounds, quiet=True)
    text, reached = report(options, measured)
    measuring.print_report(text)
    settings = {name: value for name, value in vars(options).items() if name != "json"}
    facts = {"options": settings, "environment": measuring.facts_of_machine()}
    measuring.write_json(options.json, {**facts, "measurements": measured.as_json()})
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
