"""``make crash-test``: training and data preparation, killed at random moments and resumed."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.crash import preparation
from tests.crash.training import crash, prepare

UPDATES = 400
DOCUMENTS = 40_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=25, help="kills of training (default %(default)s)")
    parser.add_argument("--preparation-kills", type=int, default=8, help="kills of preparation (default %(default)s)")
    parser.add_argument("--seed", type=int, help="determines the moments; None: another one each time")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    log(f"seed {seed}: to see the same moments again, --seed {seed}")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="crash-") as folder:
        preparation.crash(Path(folder) / "text", options.preparation_kills, DOCUMENTS, seed, log)
        experiment = prepare(Path(folder), UPDATES)
        log(f"the run that nobody kills: {UPDATES} steps, the first after {experiment.seconds_to_first_step:.1f} s")
        crash(experiment, options.kills, seed, log)
    kills = f"{options.preparation_kills} kills of data preparation and {options.kills} of training"
    log(f"{kills} in {time.monotonic() - started:.0f} s; nothing was lost")
    return 0


def log(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
