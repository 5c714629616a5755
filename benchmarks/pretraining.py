"""Training speed and memory beside Hugging Face's: ``python -m benchmarks.pretraining``.

Every competitor trains the same model on the same data in a process of its own. The processes take turns,
round after round. PyTorch is needed for this only: ``pip install -r requirements-bench.txt``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.figures import FIRST_STEP, MEMORY, SPEED, Figures, targets
from benchmarks.jobs import COMPETITORS, GEMM, GENERATED, PUBLISHED_SIZES, SIZES, Job
from benchmarks.rounds import Measurement, measure_all, schedule
from benchmarks.tables import report, with_pytorch
from utilities.environment import environment_facts
from utilities.errors import UserError

DEFAULT_COMPETITORS = [name for name in COMPETITORS if name != GENERATED]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pretraining", description=__doc__)
    parser.add_argument(
        "--sizes", nargs="+", choices=SIZES, default=list(PUBLISHED_SIZES), help="default: mini small base"
    )
    parser.add_argument(
        "--competitors",
        nargs="+",
        choices=COMPETITORS,
        default=DEFAULT_COMPETITORS,
        help=f"default: all but {GENERATED}",
    )
    parser.add_argument(
        "--generated",
        action="store_true",
        help="also run_pretraining.py itself, on generated data: is the command as fast as its engine?",
    )
    parser.add_argument("--rounds", type=int, default=3, help="processes of each competitor at each size")
    parser.add_argument("--steps", type=int, help="measured steps of a process; default: by size")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before those (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements, after each process")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    options = parser.parse_args(arguments)
    if options.generated and GENERATED not in options.competitors:
        options.competitors = [*options.competitors, GENERATED]
    for name in ("rounds", "warm_up", "steps"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return options


def check_packages(competitors: list[str]) -> None:
    """Say what is missing before anything runs.

    Raises:
        UserError: a competitor's package is not installed.
    """
    for name in competitors:
        package = COMPETITORS[name].package
        if package and importlib.util.find_spec(package) is None:
            raise UserError(
                f"{name} needs {package}, which is not installed; run `pip install -r"
                " requirements-bench.txt`, or leave it out with --competitors"
            )


def as_json(facts: dict[str, Any], measurements: list[Measurement], options: argparse.Namespace) -> dict[str, Any]:
    """All measurements, the medians, and what was reached so far."""
    figures = Figures(measurements)
    medians = {
        size: {
            name: {value: figures.median(name, size, value) for value in (SPEED, MEMORY, FIRST_STEP)}
            for name in options.competitors
            if name != GEMM
        }
        for size in options.sizes
    }
    reached = [
        {
            "target": t.name,
            "size": t.size,
            "wanted": t.bound,
            "found": t.of(figures),
            "reached": t.reached(figures),
        }
        for t in targets(options.sizes)
    ]
    return {
        "machine": facts,
        "medians": medians,
        "targets": reached,
        "measurements": [vars(measurement) for measurement in measurements],
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print the tables on standard output."""
    options = parse(arguments)
    try:
        check_packages(options.competitors)
        facts = with_pytorch(environment_facts())

        def save(measurements: list[Measurement]) -> None:
            if options.json:
                text = json.dumps(as_json(facts, measurements, options), indent=1, ensure_ascii=False)
                options.json.write_text(text + "\n", encoding="utf-8")

        planned = schedule(
            options.sizes,
            options.competitors,
            options.rounds,
            lambda name, size: Job(name, size, options.warm_up, options.steps or SIZES[size].steps),
        )
        figures = Figures(measure_all(planned, save))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    text = report(figures, options.sizes, options.competitors, facts, options.rounds)
    if options.markdown:
        options.markdown.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
