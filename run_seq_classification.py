#!/usr/bin/env python3
"""Fine-tune BERT on a GLUE or CLUE task: ``python run_seq_classification.py --config configs/… --glue-task mrpc``."""

from __future__ import annotations

import sys
import time

from utilities.cli import main
from utilities.config.loading import LoadedConfig

STARTED = time.perf_counter()


def run(loaded: LoadedConfig) -> None:
    """Train and evaluate; TensorFlow is imported here, so that plans and errors of the config come at once."""
    from tasks.classification import Classification
    from training.seeds import train_with_seeds

    train_with_seeds(loaded, Classification, started=STARTED)


if __name__ == "__main__":
    sys.exit(main("classification", run))
