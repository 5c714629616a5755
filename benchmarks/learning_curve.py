"""Does this project learn what PyTorch learns? ``python -m benchmarks.learning_curve``.

BERT-tiny (2 layers × 128) from the same initial weights on the same samples, without dropout: the loss of
every step beside that of a plain Hugging Face PyTorch loop (``pip install -r requirements-bench.txt``).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from model.architecture import Architecture
from utilities.errors import UserError

if TYPE_CHECKING:
    from benchmarks.curves import Curves, Samples

LIMIT = 0.005
TINY = Architecture(
    vocab_size=30528,
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=512,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    use_qkv_bias=True,
    use_qkv_split=True,
    use_projection_bias=True,
    use_cls_layer=True,
)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning_curve", description=__doc__)
    parser.add_argument("--steps", type=int, default=100, help="weight updates (default %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="default %(default)s")
    data = parser.add_mutually_exclusive_group()
    data.add_argument(
        "--dataset-dir",
        type=Path,
        metavar="FOLDER",
        help="records of length 128 with 20 predictions; default: made from English Wikipedia where the tests"
        " have it, generated elsewhere",
    )
    data.add_argument("--generated", action="store_true", help="generated samples in any case")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write both curves")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw both curves")
    return parser.parse_args(arguments)


def samples_of(options: argparse.Namespace, count: int) -> tuple[str, Samples]:
    """What the data is, and the data."""
    from benchmarks import curve_data

    if options.dataset_dir:
        return str(options.dataset_dir), curve_data.read(options.dataset_dir, TINY.vocab_size, count)
    real = None if options.generated else curve_data.real_text(TINY.vocab_size, count)
    if real is not None:
        return "English Wikipedia", real
    return "generated samples", curve_data.generated(TINY.vocab_size, count, seed=1984)


def summary(curves: Curves, data: str) -> str:
    """Three lines."""
    worst = max(curves.deviations)
    step = curves.deviations.index(worst)
    verdict = "within" if worst <= LIMIT else "NOT within"
    return "\n".join(
        [
            f"{len(curves.ours)} AdamW steps of BERT-tiny on {data}, dropout 0",
            f"loss {curves.ours[0]:.4f} → {curves.ours[-1]:.4f}, PyTorch"
            f" {curves.pytorch[0]:.4f} → {curves.pytorch[-1]:.4f}",
            f"largest deviation {worst:.4%} at step {step + 1}: {verdict} {LIMIT:.1%} at every step",
        ]
    )


def draw(curves: Curves, path: Path) -> None:
    """Both curves, and their deviation below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    steps = range(1, len(curves.ours) + 1)
    above.plot(steps, curves.pytorch, linewidth=4, alpha=0.35, label="Hugging Face PyTorch")
    above.plot(steps, curves.ours, linewidth=1.2, label="this project")
    above.set_ylabel("loss (nats)")
    above.legend(frameon=False)
    below.plot(steps, [100 * deviation for deviation in curves.deviations], linewidth=1, color="grey")
    below.set(xlabel="weight update", ylabel="deviation (%)")
    figure.savefig(path, dpi=150)


def main(arguments: list[str] | None = None) -> int:
    """Train on both sides; status 0 where the curves agree, 1 where they do not."""
    options = parse(arguments)
    try:
        for package in ("torch", "matplotlib"):
            if importlib.util.find_spec(package) is None:
                raise UserError(f"this needs {package}; run `pip install -r requirements-bench.txt`")
        from benchmarks.curves import Recipe, learning_curves

        recipe = Recipe(TINY, steps=options.steps, learning_rate=options.learning_rate)
        data, samples = samples_of(options, recipe.steps * recipe.micro_batch)
        curves = learning_curves(recipe, samples)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(summary(curves, data))
    if options.json:
        values = {
            "data": data,
            "ours": curves.ours,
            "pytorch": curves.pytorch,
            "largest_deviation": max(curves.deviations),
        }
        options.json.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    if options.png:
        draw(curves, options.png)
    return 0 if max(curves.deviations) <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
