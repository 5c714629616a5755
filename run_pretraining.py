#!/usr/bin/env python3
"""Pre-train BERT: ``python run_pretraining.py --config configs/… [--dataset-dir …]``; see ``--help``."""

from __future__ import annotations

import sys
import time

from utilities.cli import main
from utilities.config.loading import LoadedConfig

STARTED = time.perf_counter()


def run(loaded: LoadedConfig) -> None:
    """Train; TensorFlow is imported here, so that plans and errors of the config come at once."""
    from tasks.pretraining import Pretraining
    from training.trainer import train

    train(loaded, Pretraining, started=STARTED)


if __name__ == "__main__":
    sys.exit(main("pretraining", run))
