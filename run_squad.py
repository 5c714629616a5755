#!/usr/bin/env python3
"""Fine-tune BERT on SQuAD 1.1 and score its answers: ``python run_squad.py --config configs/… [--dataset-dir …]``."""

from __future__ import annotations

import sys
import time

from utilities.cli import main
from utilities.config.loading import LoadedConfig

STARTED = time.perf_counter()


def run(loaded: LoadedConfig) -> None:
    """Train and evaluate; TensorFlow is imported here, so that plans and errors of the config come at once."""
    from tasks.squad import Squad
    from training.trainer import train

    train(loaded, Squad, started=STARTED)


if __name__ == "__main__":
    sys.exit(main("squad", run))
