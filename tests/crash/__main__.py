"""``make crash-test``: training and data preparation, killed at random moments and gone on with."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.training import crash, prepare

UPDATES = 400


def main() -> int:
    """Runs the long crash suite; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=25, help="of training")
    parser.add_argument("--seed", type=int, help="of the moments; None: another one each time")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}: to see the same moments again, --seed {seed}", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="crash-") as folder:
        place = prepare(Path(folder), UPDATES)
        print(f"the run that nobody kills: {UPDATES} steps, the first after {place.seconds_to_first_step:.1f} s")
        crash(place, options.kills, seed, tell=lambda line: print(line, flush=True))
    print(f"{options.kills} kills of training in {time.monotonic() - started:.0f} s; nothing was lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
