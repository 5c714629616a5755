"""``python -m tests.fuzz``: many mutated files, each accepted correctly or refused with one clear line."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.harness import Suite, run_suite

CASES = {"configs": 2000, "records": 500, "checkpoints": 200, "pretrained": 200}


def import_suite(name: str) -> Callable[[Path], Suite]:
    """Return a suite; suites are imported one by one, because configs do not need TensorFlow."""
    suite: Callable[[Path], Suite] = getattr(importlib.import_module(f"tests.fuzz.{name}"), name.capitalize())
    return suite


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=1984, help="determines all cases (default: %(default)s)")
    for name, count in CASES.items():
        parser.add_argument(f"--{name}", type=int, default=count, metavar="N", help=f"cases (default: {count})")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # which damaged files cause, as they should
    failed = False
    for name in CASES:
        cases = getattr(options, name)
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            report = run_suite(import_suite(name)(Path(folder)), cases, options.seed)
        counts = ", ".join(f"{number} {outcome}" for outcome, number in sorted(report.outcomes.items()))
        print(f"{name}: {cases} cases, {counts}, {len(report.failures)} failures", *report.failures, sep="\n")
        print(f"  {time.monotonic() - started:.0f} s", flush=True)
        failed = failed or bool(report.failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
