"""Does float16 with stochastic rounding learn what float32 learns? ``python -m benchmarks.precision``.

BERT-tiny (2 layers × 128) from the same initial weights on the same samples, without dropout, at a learning rate so
small that most updates are less than half the distance of two float16 numbers: in float32; in float16 with weights
rounded at random; and in float16 with weights rounded to nearest, where such updates are lost.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from utilities.errors import UserError

if TYPE_CHECKING:
    from benchmarks.curve_data import Samples

LIMIT = 0.01
FLOAT32, AT_RANDOM, TO_NEAREST = "float32", "float16, rounded at random", "float16, rounded to nearest"
VARIANTS = {FLOAT32: ("float32", False), AT_RANDOM: ("float16", True), TO_NEAREST: ("float16", False)}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=300, help="weight updates (default %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=3e-5, help="default %(default)s")
    parser.add_argument("--micro-batch", type=int, default=8, help="samples of an update (default %(default)s)")
    parser.add_argument("--generated", action="store_true", help="generated samples, also where there is real text")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the curves")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the curves (.svg, .png)")
    return parser.parse_args(arguments)


def samples_of(options: argparse.Namespace, vocabulary: int, count: int) -> tuple[str, Samples]:
    """What the data is, and the data."""
    from benchmarks import curve_data

    real = None if options.generated else curve_data.real_text(vocabulary, count)
    if real is not None:
        return "English Wikipedia", real
    return "generated samples", curve_data.generated(vocabulary, count, seed=1984)


def deviations(curves: dict[str, list[float]], variant: str) -> list[float]:
    """Of each step, as a share of float32's loss."""
    return [abs(one - other) / other for one, other in zip(curves[variant], curves[FLOAT32], strict=True)]


def summary(curves: dict[str, list[float]]) -> str:
    """A table of losses at some steps, and the verdict."""
    from benchmarks.tables import markdown

    steps = len(curves[FLOAT32])
    shown = sorted({0, *(steps * part // 6 - 1 for part in range(1, 7))})
    rows = [["loss at step", *(str(step + 1) for step in shown), "largest deviation"]]
    for name, losses in curves.items():
        worst = "" if name == FLOAT32 else f"{max(deviations(curves, name)):.2%}"
        rows.append([name, *(f"{losses[step]:.4f}" for step in shown), worst])
    fallen = {name: losses[0] - sum(losses[-20:]) / len(losses[-20:]) for name, losses in curves.items()}
    share = fallen[TO_NEAREST] / fallen[FLOAT32]
    verdict = "within" if max(deviations(curves, AT_RANDOM)) <= LIMIT else "NOT within"
    return (
        f"{markdown(rows)}\nrounded at random: {verdict} {LIMIT:.0%} of float32 at every step;"
        f" rounded to nearest, the loss fell by {share:.0%} of what it fell in float32"
    )


def draw(curves: dict[str, list[float]], path: Path) -> None:
    """The three curves, each a mean over ten steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for (name, losses), width in zip(curves.items(), (4, 1.4, 1.4), strict=True):
        smooth = [sum(losses[max(0, end - 10) : end]) / min(end, 10) for end in range(1, len(losses) + 1)]
        axes.plot(range(1, len(losses) + 1), smooth, linewidth=width, alpha=0.45 if width > 2 else 1, label=name)
    axes.set(xlabel="weight update", ylabel="loss (nats), mean of 10 updates")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main(arguments: list[str] | None = None) -> int:
    """Train three times; status 0 where float16 rounded at random follows float32, 1 where it does not."""
    options = parse(arguments)
    try:
        from benchmarks.precision_curves import VOCABULARY, curve

        data, samples = samples_of(options, VOCABULARY, options.steps * options.micro_batch)
        curves = {
            name: curve(samples, options.steps, options.micro_batch, options.learning_rate, *variant)
            for name, variant in VARIANTS.items()
        }
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{options.steps} AdamW updates of {options.micro_batch} samples at {options.learning_rate:g}, {data}")
    print(summary(curves))
    if options.json:
        options.json.write_text(json.dumps({"data": data, **curves}, indent=1) + "\n", encoding="utf-8")
    if options.picture:
        draw(curves, options.picture)
        print(f"picture: {options.picture}")
    return 0 if max(deviations(curves, AT_RANDOM)) <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
